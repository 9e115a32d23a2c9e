"""Durable tasks over a pico storage: kinds, transactions, one commit line, a driver."""

from pico_harness.call import Call as Call
from pico_harness.call import Cancellation as Cancellation
from pico_harness.call import current_call as current_call
from pico_harness.conversation import ConversationHandle as ConversationHandle
from pico_harness.faults import FaultReport as FaultReport
from pico_harness.harness import Harness as Harness
from pico_harness.harness import Inspection as Inspection
from pico_harness.inbox import EntryDraft as EntryDraft
from pico_harness.inbox import InputResult as InputResult
from pico_harness.kinds import EntryKind as EntryKind
from pico_harness.kinds import Faulted as Faulted
from pico_harness.kinds import Orphaned as Orphaned
from pico_harness.kinds import TaskOf as TaskOf
from pico_harness.kinds import TaskState as TaskState
from pico_harness.opening import Options as Options
from pico_harness.runtime import TaskRuntime as TaskRuntime
from pico_harness.state import conversation_list as conversation_list
from pico_harness.state import conversation_value as conversation_value
from pico_harness.state import scratch_list as scratch_list
from pico_harness.state import scratch_value as scratch_value
from pico_harness.state import session_list as session_list
from pico_harness.state import session_value as session_value
from pico_harness.task_kind import TaskKind as TaskKind
from pico_harness.tx import ScratchTx as ScratchTx
from pico_harness.tx import Tx as Tx
