-- The records of tasks. What changes often is apart from what is large, because SQLite rewrites a whole row.

-- Usage, kept by the transactions that change it. Row 0 is that of all tasks, row 1 that of anonymous callers.
CREATE TABLE principals (
    id INTEGER PRIMARY KEY,
    name TEXT UNIQUE,
    tasks INTEGER NOT NULL DEFAULT 0,
    unfinished INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO principals (id, name) VALUES (0, NULL), (1, NULL);

-- Times are milliseconds since 1970-01-01 UTC. A list reads no column after `status_message`.
CREATE TABLE tasks (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    principal INTEGER NOT NULL REFERENCES principals (id),
    version INTEGER NOT NULL,
    status TEXT NOT NULL,
    run_mode TEXT NOT NULL,
    is_cancel_requested INTEGER NOT NULL,
    ttl INTEGER,
    poll_interval INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER,
    remove_at INTEGER,
    bytes INTEGER NOT NULL,
    status_message TEXT,
    questions TEXT,
    answers TEXT,
    outcome TEXT
) STRICT;
CREATE INDEX tasks_of_principal ON tasks (principal, created_at, id);
CREATE INDEX tasks_to_remove ON tasks (remove_at) WHERE remove_at IS NOT NULL;

-- Renewed every few seconds. `leased_until` is NULL if the task is finished.
CREATE TABLE runs (
    task INTEGER PRIMARY KEY REFERENCES tasks (number) ON DELETE CASCADE,
    owner BLOB NOT NULL,
    attempt INTEGER NOT NULL,
    leased_until INTEGER,
    journal_bytes INTEGER NOT NULL
) STRICT;
CREATE INDEX runs_to_claim ON runs (leased_until) WHERE leased_until IS NOT NULL;

-- Never changed.
CREATE TABLE requests (
    task INTEGER PRIMARY KEY REFERENCES tasks (number) ON DELETE CASCADE,
    tool TEXT NOT NULL,
    arguments TEXT NOT NULL,
    meta TEXT,
    context TEXT
) STRICT;

-- The order of the entries of a task is that of their numbers.
CREATE TABLE journal (
    number INTEGER PRIMARY KEY,
    task INTEGER NOT NULL REFERENCES tasks (number) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    UNIQUE (task, kind, name)
) STRICT;

-- The last changes of all processes, for hints. The newest is never deleted, so that numbers increase.
CREATE TABLE changes (
    number INTEGER PRIMARY KEY,
    task BLOB NOT NULL,
    version INTEGER NOT NULL
) STRICT;
