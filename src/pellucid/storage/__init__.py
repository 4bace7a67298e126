"""The store: responses, conversations, chats, spaces and keys, in a SQLite file or in PostgreSQL.

    store = await open_store("sqlite:///pellucid.sqlite")
    await store.responses.put(response, item_ids)
    await store.responses.get(owner, response.id)

The rules:

* When a write returns, its data is on the disk, and a crash does not undo it.
* A space is a log. A writer can append to it only if it knows the end of the log (`appends`).
* Every row has an owner. A row of another owner looks the same as a row that does not exist.
* Expired rows are invisible to readers, whether they are deleted yet or not.
* While the database does not answer, every call raises `StoreError` without delay.

`tables` defines the tables, and `migrations` updates older databases. `responses`, `conversations`, `chats`, `spaces`
(with `space_rows`, `appends`, `envelopes`, `space_log`), `keys`, `usage`, `store` and the record modules define the
operations. An operation is a generator that yields statements and is sent rows, so it is written once and does not
depend on a driver (`statement`; `database` combines many writes into one transaction). `record_write` defines the
content of the record and writes its entries, `record_store` signs and erases, and `record_export` exports it. Only the
drivers, `sqlite` and `postgres`, do I/O.
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
from .feedback import Feedback, FeedbackRow, StoredFeedback
from .keys import KeyStore, RevokedTokens, StoredKey
from .responses import Responses, ResponseStatus, StoredResponse
from .shares import Shares, StoredShare
from .space_log import EnvelopePage
from .space_rows import ParticipantOrigin, SpaceOrigin, StoredParticipant, StoredSpace
from .spaces import Spaces
from .store import Store, check_store_url, open_store
from .usage import CostTotals, UsageCounts, UsageFilter, UsageKey, UsageRow, UsageStore

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
    "CostTotals",
    "EnvelopePage",
    "Feedback",
    "FeedbackRow",
    "KeyStore",
    "ParticipantOrigin",
    "PreviousResponseGone",
    "ResponseStatus",
    "Responses",
    "RevokedTokens",
    "Shares",
    "SpaceHead",
    "SpaceNotFound",
    "SpaceOrigin",
    "Spaces",
    "Store",
    "StoreError",
    "StoredChat",
    "StoredConversation",
    "StoredEnvelope",
    "StoredFeedback",
    "StoredKey",
    "StoredParticipant",
    "StoredResponse",
    "StoredShare",
    "StoredSpace",
    "UsageCounts",
    "UsageFilter",
    "UsageKey",
    "UsageRow",
    "UsageStore",
    "check_store_url",
    "open_store",
]
