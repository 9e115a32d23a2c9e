"""Reading an imported session back, in few words."""

from pico_store.address import Seq
from pico_store.context import derive_context
from pico_store.query import ConversationQuery, EntryQuery
from pico_store.records import Conversation, Entry, JsonObject
from pico_store.storage import Storage, Store


def opened(store: Store, session: str = "s") -> Storage:
    return store.open(session, read_only=True)


def conversations(storage: Storage) -> list[Conversation]:
    return storage.scan_conversations(ConversationQuery(limit=1000)).items


def entries(storage: Storage, conversation: int = 1) -> list[Entry]:
    query = EntryQuery(conversation_id=Seq(conversation), limit=10_000)
    return storage.scan_entries(query).items


def said(storage: Storage, conversation: int = 1) -> list[str]:
    """Return what a conversation shows: texts, calls as ``>id``, results as ``<id``."""
    found: list[str] = []
    for entry in entries(storage, conversation):
        for message in entry.model or ():
            found += brief(message)
    return found


def brief(message: JsonObject) -> list[str]:
    if message["role"] == "toolResult":
        return [f"<{message['toolCallId']}"]
    content = message["content"]
    if isinstance(content, str):
        return [content]
    assert isinstance(content, list)
    found = []
    for block in content:
        assert isinstance(block, dict)
        found.append(f">{block['id']}" if block["type"] == "toolCall" else str(block.get("text")))
    return found


def context_said(storage: Storage, conversation: int = 1) -> list[str]:
    messages = derive_context(storage, Seq(conversation)).messages
    return [word for message in messages for word in brief(message)]


def unmapped(entry: Entry) -> list[JsonObject]:
    """Return what the entry keeps of its records beyond the message."""
    assert isinstance(entry.data, dict)
    records = entry.data["records"]
    assert isinstance(records, list)
    return [record for record in records if isinstance(record, dict)]
