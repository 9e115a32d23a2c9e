"""A history on which 'jsonl' and the model differ; `python FILE` shows how."""

from pico_conformance.operation import Append, Clear, Commit, Delete, Handle, Mistake, NewConversation, NewEntry, NewTask, Patch, Set, Settle, Unset, Where
from pico_conformance.replay import Care
from pico_conformance.reproduce import show

# an unexpected error
# Traceback (most recent call last):
#   File "/tmp/wt-jsonl/conformance/pico_conformance/replay.py", line 100, in run
#     Acts(subject, model, self.tally).do(operation)
#   File "/tmp/wt-jsonl/conformance/pico_conformance/acts.py", line 63, in do
#     self.tally.acts[acts[handle.act](random) or handle.act] += 1
#                     ^^^^^^^^^^^^^^^^^^^^^^^^
#   File "/tmp/wt-jsonl/conformance/pico_conformance/acts.py", line 219, in _vacuum
#     self.subject.home.store.vacuum()
#   File "/tmp/wt-jsonl/backends/pico_jsonl/store.py", line 154, in vacuum
#     report = self._vacuum(place, session)
#              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
HISTORY = (
    Commit(steps=(NewConversation(label=0),), probe=1104509195),
    Commit(steps=(Set(where=Where(scope='conversation', holder=0, namespace='c', key='l'), value=83), Append(label=1, where=Where(scope='session', holder=0, namespace='a', key=''), value=24), NewEntry(label=2, conversation=0, kind='user', key='\\', head=2)), probe=1837250396),
    Commit(steps=(NewEntry(label=3, conversation=0, kind='user', key='k'), NewConversation(label=4, parent=0, at=2), Clear(where=Where(scope='session', holder=0, namespace='a', key='K'))), mistake=Mistake(name='FORK-1 parent of another form', position=1, seed=4032), probe=3297656266),
    Commit(steps=(NewConversation(label=5, parent=0, at=2), Delete(conversation=5), Set(where=Where(scope='conversation', holder=0, namespace='a', key='k', rewind=True), value=None)), probe=3268960684),
    Commit(steps=(NewConversation(label=6), Delete(conversation=6), NewConversation(label=7, parent=0, at=2), Delete(conversation=7)), mistake=Mistake(name='ENT-1 deleted conversation', position=4, seed=1639), expected=True, probe=2391207903),
    Commit(steps=(Set(where=Where(scope='session', holder=0, namespace='a', key=''), value=99),), expected=True, probe=70447572),
    Commit(steps=(Clear(where=Where(scope='conversation', holder=0, namespace='a', key='K', rewind=True)), Unset(where=Where(scope='conversation', holder=0, namespace='a', key='K', rewind=True))), expected=True, probe=1378728915),
    Commit(steps=(Append(label=8, where=Where(scope='conversation', holder=0, namespace='a', key='K', rewind=True), value='bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb'), NewTask(label=9, conversation=0, kind='note', role='inflight', state={'status': 'running'}), Set(where=Where(scope='conversation', holder=0, namespace='c', key='l'), value=[])), probe=2395353518),
    Commit(steps=(Settle(task=9),), probe=3136743397),
    Commit(steps=(NewConversation(label=10, parent=0, at=2), Set(where=Where(scope='conversation', holder=0, namespace='c', key='l'), value=40)), probe=3522302910),
    Commit(steps=(NewConversation(label=11), Unset(where=Where(scope='session', holder=0, namespace='c', key='')), NewTask(label=12, conversation=11, kind='__proto__', state={'status': 'waiting'}, after=(9,)), Set(where=Where(scope='conversation', holder=11, namespace='c', key='K'), value={' ': 1, '': []})), probe=542365711),
    Commit(steps=(NewEntry(label=13, conversation=0, kind='assistant', key='k', data='constructor'),), mistake=Mistake(name='DEL-3 deleted parent', seed=2719), probe=1974626800),
    Commit(steps=(Set(where=Where(scope='conversation', holder=10, namespace='a', key='k'), value=46), NewEntry(label=14, conversation=11, kind='assistant', key='k', data='a%00', model=[{' ': 91}])), probe=1795358382),
    Commit(steps=(NewConversation(label=15, parent=10, at=2), Patch(task=12, role='inflight', state={'status': 'ready'}), NewEntry(label=16, conversation=15, key='')), mistake=Mistake(name='FORK-1 unknown parent', position=1, seed=7568), probe=641251522),
    Commit(steps=(NewEntry(label=17, conversation=10, key=''), NewConversation(label=18, parent=11, at=14)), probe=3865573740),
    Commit(steps=(NewEntry(label=19, conversation=11, kind='assistant', key='k', model=[{'\u2028': -1}]), NewConversation(label=20, owner=9), NewTask(label=21, conversation=20, kind='note', after=(12, 9), background=True, turn=True), NewConversation(label=22, parent=10, at=17, owner=21)), probe=3433964765),
    Commit(steps=(Set(where=Where(scope='scratch', holder=21, namespace='a', key='K'), value={'\\': [40], 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx': -9223372036854775808}), Append(label=23, where=Where(scope='scratch', holder=21, namespace='c', key=''), value=96), Append(label=24, where=Where(scope='scratch', holder=21, namespace='a', key='K'), value=False)), scratch=21, probe=558760214),
    Handle(act='vacuum', probe=2420783479),
)

if __name__ == "__main__":
    care = Care(reads=6, every_operation=False, at_the_end=True)
    raise SystemExit(show('jsonl', 'memory', HISTORY, care))
