-- Bodies of messages, which are too long for a notification. They live for a minute, and are worth nothing after a crash.
CREATE UNLOGGED TABLE bowline.messages (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    body bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX messages_by_age ON bowline.messages (created_at);

CREATE TABLE bowline.marks (
    key bytea PRIMARY KEY,
    value bytea NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX marks_by_expiry ON bowline.marks (expires_at);
