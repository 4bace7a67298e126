"""What is kept: responses, conversations, chats, spaces and keys, in a SQLite file or in PostgreSQL.

    store = await open_store("sqlite:///pellucid.sqlite")
    await store.responses.put(response, item_ids)
    await store.responses.get(owner, response.id)

The rules:

* A call that came back has happened: it is on the disk, and a crash does not take it back.
* A space is a log: what is said in it is appended by whoever saw its end, and by nobody else (`appends`).
* Every row has an owner. Who asks for another's row sees what they would see if there were none.
* What has expired is not there for readers, whether it has been swept away yet or not.
* A store that does not answer is a `StoreError`, at once and for every caller, until it answers again.

`tables` is what is kept, `migrations` how older databases become that. `responses`, `conversations`, `chats`, `spaces`
(with `rooms`, `appends`, `envelopes`, `walks`, `links`, `portions`), `keys`, `store` and the record are what can be
asked of it: generators that yield statements and are sent rows, so that each is written once and knows no driver
(`statement`, which also makes one transaction of many writes). Of the record, `record` writes and signs it,
`record_export` reads it out, `record_store` erases from it, and `contents` is what it is of. `sqlite` and `postgres`
are the two that do I/O.
"""

from .appends import Append, SpaceHead
from .chats import ChatListEntry, ChatPage, Chats, StoredChat
from .conversations import ConversationEntry, Conversations, StoredConversation
from .envelopes import StoredEnvelope
from .errors import (
    AlreadyStored,
    AppendConflict,
    ChatBusy,
    ChatMoved,
    ChatNotFound,
    PreviousResponseGone,
    SpaceNotFound,
    StoreError,
)
from .keys import Keys, StoredKey
from .paging import EnvelopePage
from .responses import Responses, ResponseStatus, StoredResponse
from .space_rows import ParticipantOrigin, SpaceOrigin, StoredParticipant, StoredSpace
from .spaces import Spaces
from .store import Store, check_store_url, open_store

__all__ = [
    "AlreadyStored",
    "Append",
    "AppendConflict",
    "ChatBusy",
    "ChatListEntry",
    "ChatMoved",
    "ChatNotFound",
    "ChatPage",
    "Chats",
    "ConversationEntry",
    "Conversations",
    "EnvelopePage",
    "Keys",
    "ParticipantOrigin",
    "PreviousResponseGone",
    "ResponseStatus",
    "Responses",
    "SpaceHead",
    "SpaceNotFound",
    "SpaceOrigin",
    "Spaces",
    "Store",
    "StoreError",
    "StoredChat",
    "StoredConversation",
    "StoredEnvelope",
    "StoredKey",
    "StoredParticipant",
    "StoredResponse",
    "StoredSpace",
    "check_store_url",
    "open_store",
]
