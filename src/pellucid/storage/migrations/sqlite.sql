CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL, 
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

CREATE TABLE responses (
    owner TEXT NOT NULL, 
    id TEXT NOT NULL, 
    created_at DOUBLE NOT NULL, 
    updated_at DOUBLE NOT NULL, 
    expires_at DOUBLE, 
    status TEXT NOT NULL, 
    model TEXT NOT NULL, 
    previous_id TEXT, 
    conversation_id TEXT, 
    background BOOLEAN NOT NULL, 
    fence BIGINT NOT NULL, 
    PRIMARY KEY (owner, id)
)
 WITHOUT ROWID;

CREATE INDEX responses_due ON responses (expires_at) WHERE expires_at IS NOT NULL;

CREATE INDEX responses_unfinished ON responses (updated_at) WHERE status IN ('queued', 'in_progress');

CREATE TABLE response_bodies (
    owner TEXT NOT NULL, 
    response_id TEXT NOT NULL, 
    header BLOB NOT NULL, 
    input BLOB NOT NULL, 
    messages BLOB NOT NULL, 
    error BLOB, 
    log BLOB NOT NULL, 
    PRIMARY KEY (owner, response_id)
);

CREATE TABLE response_items (
    owner TEXT NOT NULL, 
    item_id TEXT NOT NULL, 
    response_id TEXT NOT NULL, 
    PRIMARY KEY (owner, item_id, response_id)
)
 WITHOUT ROWID;

CREATE INDEX response_items_of ON response_items (owner, response_id);

CREATE TABLE conversations (
    owner TEXT NOT NULL, 
    id TEXT NOT NULL, 
    created_at DOUBLE NOT NULL, 
    expires_at DOUBLE, 
    metadata BLOB NOT NULL, 
    next_position BIGINT NOT NULL, 
    PRIMARY KEY (owner, id)
)
 WITHOUT ROWID;

CREATE INDEX conversations_due ON conversations (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE conversation_entries (
    owner TEXT NOT NULL, 
    conversation_id TEXT NOT NULL, 
    position BIGINT NOT NULL, 
    id TEXT NOT NULL, 
    item BLOB NOT NULL, 
    message BLOB, 
    PRIMARY KEY (owner, conversation_id, position)
);

CREATE UNIQUE INDEX conversation_entries_id ON conversation_entries (owner, conversation_id, id);

CREATE TABLE keys (
    id TEXT NOT NULL, 
    hash BLOB NOT NULL, 
    owner TEXT NOT NULL, 
    name TEXT NOT NULL, 
    created_at DOUBLE NOT NULL, 
    expires_at DOUBLE, 
    revoked_at DOUBLE, 
    policy BLOB NOT NULL, 
    PRIMARY KEY (id), 
    UNIQUE (hash)
);

CREATE INDEX ix_keys_owner ON keys (owner);

INSERT INTO alembic_version (version_num) VALUES ('0001') RETURNING version_num;

CREATE INDEX responses_of ON responses (owner, conversation_id, created_at) WHERE conversation_id IS NOT NULL;

CREATE TABLE chats (
    owner TEXT NOT NULL, 
    id TEXT NOT NULL, 
    title TEXT NOT NULL, 
    created_at DOUBLE NOT NULL, 
    updated_at DOUBLE NOT NULL, 
    expires_at DOUBLE, 
    head TEXT NOT NULL, 
    PRIMARY KEY (owner, id)
)
 WITHOUT ROWID;

CREATE INDEX chats_in_order ON chats (owner, updated_at, id);

CREATE INDEX chats_due ON chats (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE texts (
    number INTEGER NOT NULL, 
    owner TEXT NOT NULL, 
    scope TEXT NOT NULL, 
    "of" TEXT NOT NULL, 
    id TEXT NOT NULL, 
    mark TEXT NOT NULL, 
    text TEXT NOT NULL, 
    folded TEXT NOT NULL, 
    PRIMARY KEY (number)
);

CREATE UNIQUE INDEX texts_id ON texts (owner, scope, id);

CREATE INDEX texts_of ON texts (owner, scope, "of", number);

CREATE VIRTUAL TABLE texts_grams USING fts5(
    mark, folded, content='texts', content_rowid='number', tokenize='trigram case_sensitive 1', detail=none);

CREATE TRIGGER texts_added AFTER INSERT ON texts BEGIN INSERT INTO texts_grams(rowid, mark, folded) VALUES (new.number, new.mark, new.folded); END;

CREATE TRIGGER texts_gone AFTER DELETE ON texts BEGIN INSERT INTO texts_grams(texts_grams, rowid, mark, folded) VALUES ('delete', old.number, old.mark, old.folded); END;

CREATE TRIGGER texts_changed AFTER UPDATE OF mark, folded ON texts BEGIN INSERT INTO texts_grams(texts_grams, rowid, mark, folded) VALUES ('delete', old.number, old.mark, old.folded); INSERT INTO texts_grams(rowid, mark, folded) VALUES (new.number, new.mark, new.folded); END;

UPDATE alembic_version SET version_num='0002' WHERE alembic_version.version_num = '0001';

CREATE TABLE spaces (
    owner TEXT NOT NULL, 
    name TEXT NOT NULL, 
    created_at DOUBLE NOT NULL, 
    settings BLOB NOT NULL, 
    version BIGINT NOT NULL, 
    head BIGINT NOT NULL, 
    latest BIGINT NOT NULL, 
    origin TEXT NOT NULL, 
    removed_at DOUBLE, 
    PRIMARY KEY (owner, name)
)
 WITHOUT ROWID;

CREATE UNIQUE INDEX spaces_name ON spaces (name);

CREATE TABLE space_participants (
    owner TEXT NOT NULL, 
    space TEXT NOT NULL, 
    id TEXT NOT NULL, 
    capabilities BLOB NOT NULL, 
    token_hash BLOB NOT NULL, 
    origin TEXT NOT NULL, 
    created_at DOUBLE NOT NULL, 
    PRIMARY KEY (owner, space, id)
)
 WITHOUT ROWID;

CREATE UNIQUE INDEX space_participants_token ON space_participants (token_hash, owner, space);

CREATE TABLE space_states (
    owner TEXT NOT NULL, 
    space TEXT NOT NULL, 
    seq BIGINT NOT NULL, 
    state BLOB NOT NULL, 
    PRIMARY KEY (owner, space)
);

CREATE TABLE space_envelopes (
    owner TEXT NOT NULL, 
    space TEXT NOT NULL, 
    seq BIGINT NOT NULL, 
    id TEXT NOT NULL, 
    at BIGINT NOT NULL, 
    latest BIGINT NOT NULL, 
    sender TEXT NOT NULL, 
    family TEXT NOT NULL, 
    kind TEXT NOT NULL, 
    root TEXT, 
    path TEXT, 
    role TEXT NOT NULL, 
    "of" TEXT, 
    note BLOB NOT NULL, 
    body BLOB NOT NULL, 
    PRIMARY KEY (owner, space, seq)
);

CREATE INDEX space_envelopes_id ON space_envelopes (owner, space, id, seq);

CREATE INDEX space_envelopes_sender ON space_envelopes (owner, space, sender, seq, kind);

CREATE INDEX space_envelopes_kind ON space_envelopes (owner, space, family, seq, kind);

CREATE INDEX space_envelopes_within ON space_envelopes (owner, space, root, seq, path) WHERE root IS NOT NULL;

CREATE INDEX space_envelopes_opened ON space_envelopes (owner, space, path, seq) WHERE role = 'opens';

CREATE INDEX space_envelopes_opening ON space_envelopes (owner, space, seq) WHERE role = 'opens';

CREATE TABLE space_links (
    owner TEXT NOT NULL, 
    space TEXT NOT NULL, 
    about TEXT NOT NULL, 
    seq BIGINT NOT NULL, 
    PRIMARY KEY (owner, space, about, seq)
)
 WITHOUT ROWID;

UPDATE alembic_version SET version_num='0003' WHERE alembic_version.version_num = '0002';

CREATE TABLE record_scopes (
    owner TEXT NOT NULL, 
    scope TEXT NOT NULL, 
    number BIGINT NOT NULL, 
    hash BLOB NOT NULL, 
    signed BIGINT NOT NULL, 
    since BIGINT NOT NULL, 
    seal BLOB, 
    PRIMARY KEY (owner, scope)
)
 WITHOUT ROWID;

CREATE INDEX record_scopes_unsigned ON record_scopes (owner, scope) WHERE number > signed;

CREATE TABLE record_entries (
    owner TEXT NOT NULL, 
    scope TEXT NOT NULL, 
    number BIGINT NOT NULL, 
    at BIGINT NOT NULL, 
    kind TEXT NOT NULL, 
    subject TEXT NOT NULL, 
    digest BLOB, 
    more BLOB, 
    hash BLOB NOT NULL, 
    PRIMARY KEY (owner, scope, number)
)
 WITHOUT ROWID;

CREATE TABLE record_salts (
    owner TEXT NOT NULL, 
    scope TEXT NOT NULL, 
    subject TEXT NOT NULL, 
    kind TEXT NOT NULL, 
    number BIGINT NOT NULL, 
    salt BLOB NOT NULL, 
    PRIMARY KEY (owner, scope, subject, kind, number)
)
 WITHOUT ROWID;

CREATE TABLE record_checkpoints (
    owner TEXT NOT NULL, 
    number BIGINT NOT NULL, 
    serial BIGINT NOT NULL, 
    body BLOB NOT NULL, 
    signature BLOB NOT NULL, 
    PRIMARY KEY (owner, number)
);

CREATE UNIQUE INDEX record_checkpoints_serial ON record_checkpoints (serial);

UPDATE alembic_version SET version_num='0004' WHERE alembic_version.version_num = '0003';

ALTER TABLE response_bodies ADD COLUMN item_ids TEXT;

ALTER TABLE response_items ADD COLUMN listed BOOLEAN;

DROP INDEX response_items_of;

CREATE INDEX response_items_of ON response_items (owner, response_id) WHERE listed IS NULL;

UPDATE alembic_version SET version_num='0005' WHERE alembic_version.version_num = '0004';

CREATE TABLE usage (
    owner TEXT NOT NULL, 
    key_id TEXT NOT NULL, 
    day TEXT NOT NULL, 
    model TEXT NOT NULL, 
    deployment TEXT NOT NULL, 
    currency TEXT NOT NULL, 
    requests BIGINT NOT NULL, 
    input_tokens BIGINT NOT NULL, 
    cached_tokens BIGINT NOT NULL, 
    cache_write_tokens BIGINT NOT NULL, 
    output_tokens BIGINT NOT NULL, 
    reasoning_tokens BIGINT NOT NULL, 
    cost_nanos BIGINT NOT NULL, 
    estimated BIGINT NOT NULL, 
    PRIMARY KEY (owner, key_id, day, model, deployment, currency)
)
 WITHOUT ROWID;

CREATE INDEX usage_days ON usage (day);

CREATE INDEX usage_owner_days ON usage (owner, day);

UPDATE alembic_version SET version_num='0006' WHERE alembic_version.version_num = '0005';

CREATE TABLE revoked_tokens (
    id TEXT NOT NULL, 
    expires_at DOUBLE NOT NULL, 
    PRIMARY KEY (id)
)
 WITHOUT ROWID;

CREATE INDEX revoked_tokens_due ON revoked_tokens (expires_at);

UPDATE alembic_version SET version_num='0007' WHERE alembic_version.version_num = '0006';

ALTER TABLE chats ADD COLUMN instructions TEXT;

UPDATE alembic_version SET version_num='0008' WHERE alembic_version.version_num = '0007';

CREATE TABLE shares (
    owner TEXT NOT NULL, 
    id TEXT NOT NULL, 
    chat_id TEXT NOT NULL, 
    head TEXT NOT NULL, 
    "view" TEXT NOT NULL, 
    token_hash BLOB NOT NULL, 
    created_at DOUBLE NOT NULL, 
    expires_at DOUBLE, 
    PRIMARY KEY (owner, id)
)
 WITHOUT ROWID;

CREATE UNIQUE INDEX shares_token ON shares (token_hash);

CREATE INDEX shares_of ON shares (owner, chat_id);

CREATE TABLE feedback (
    owner TEXT NOT NULL, 
    response_id TEXT NOT NULL, 
    rating TEXT NOT NULL, 
    comment TEXT NOT NULL, 
    updated_at DOUBLE NOT NULL, 
    PRIMARY KEY (owner, response_id)
);

CREATE INDEX feedback_in_order ON feedback (updated_at, response_id);

UPDATE alembic_version SET version_num='0009' WHERE alembic_version.version_num = '0008';

CREATE TABLE space_webhooks (
    owner TEXT NOT NULL, 
    space TEXT NOT NULL, 
    name TEXT NOT NULL, 
    position BIGINT NOT NULL, 
    PRIMARY KEY (owner, space, name)
)
 WITHOUT ROWID;

UPDATE alembic_version SET version_num='0011' WHERE alembic_version.version_num = '0009';
