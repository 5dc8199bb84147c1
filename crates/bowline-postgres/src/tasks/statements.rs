//! The SQL statements on tasks.
//!
//! Locks are taken in one order, so that no two transactions wait for each other: rows of tasks, then row 0 of
//! `principals`, which stands for the usage of all. A transaction that has row 0 already skips tasks that are locked.

/// The columns of a record, in the order in which `rows::stored_task` reads them.
macro_rules! columns {
    () => {
        "t.number, t.principal, t.journal_bytes, t.id, p.name, t.run_mode, t.ttl, t.poll_interval, t.status_message, \
         t.questions, t.answers, t.is_cancel_requested, t.status, t.outcome, t.created_at, t.updated_at, \
         t.expires_at, t.remove_at, t.owner, t.attempt, t.leased_until, t.version, t.tool, t.arguments, t.meta, \
         t.context"
    };
}

pub(super) const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

pub(super) const READ: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM bowline.tasks t JOIN bowline.principals p ON p.id = t.principal
    WHERE t.id = $1 AND (t.remove_at IS NULL OR t.remove_at > $2)"
);

pub(super) const READ_LOCKED: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM bowline.tasks t JOIN bowline.principals p ON p.id = t.principal
    WHERE t.id = $1 AND (t.remove_at IS NULL OR t.remove_at > $2)
    FOR UPDATE OF t"
);

pub(super) const JOURNAL: &str = "
    SELECT j.kind, j.name, j.value
    FROM bowline.tasks t JOIN bowline.journal j ON j.task = t.number
    WHERE t.id = $1 AND (t.remove_at IS NULL OR t.remove_at > $2)
    ORDER BY j.number";

pub(super) const LIST: &str = "
    SELECT id, status, ttl, poll_interval, created_at, updated_at, status_message
    FROM bowline.tasks
    WHERE principal = (SELECT id FROM bowline.principals WHERE name = $1)
        AND (created_at, id) > ($2, $3)
        AND (remove_at IS NULL OR remove_at > $4)
    ORDER BY created_at, id
    LIMIT $5";

pub(super) const LOCK_USAGE: &str = "SELECT 1 FROM bowline.principals WHERE id = 0 FOR UPDATE";

pub(super) const PRINCIPAL: &str = "SELECT id FROM bowline.principals WHERE name = $1";

pub(super) const ADD_PRINCIPAL: &str =
    "INSERT INTO bowline.principals (name) VALUES ($1) RETURNING id";

pub(super) const USAGE: &str =
    "SELECT tasks, unfinished, bytes FROM bowline.principals WHERE id = $1";

/// Adds to the usage of a principal and to that of all.
pub(super) const ADD_USAGE: &str = "
    UPDATE bowline.principals SET tasks = tasks + $2, unfinished = unfinished + $3, bytes = bytes + $4
    WHERE id IN (0, $1::bigint)";

pub(super) const REMOVE_UNUSED_PRINCIPAL: &str =
    "DELETE FROM bowline.principals WHERE id = $1 AND id > 1 AND tasks = 0";

pub(super) const ADD_TASK: &str = "
    INSERT INTO bowline.tasks (id, principal, version, status, run_mode, is_cancel_requested, ttl, poll_interval,
        created_at, updated_at, expires_at, remove_at, owner, attempt, leased_until, bytes, journal_bytes,
        status_message, tool, arguments, meta, context)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)
    ON CONFLICT (id) DO NOTHING
    RETURNING number";

pub(super) const ADD_ENTRY: &str =
    "INSERT INTO bowline.journal (task, kind, name, value) VALUES ($1, $2, $3, $4)";

pub(super) const READ_ENTRY: &str =
    "SELECT value FROM bowline.journal WHERE task = $1 AND kind = $2 AND name = $3";

pub(super) const REMOVE_JOURNAL: &str = "DELETE FROM bowline.journal WHERE task = $1";

/// What an owner appends to: an unfinished task that it holds.
pub(super) const HELD: &str = "
    SELECT number, principal, bytes, journal_bytes
    FROM bowline.tasks
    WHERE id = $1 AND owner = $2 AND attempt = $3 AND leased_until IS NOT NULL
        AND (remove_at IS NULL OR remove_at > $4)
    FOR UPDATE";

pub(super) const CHANGE: &str = "
    UPDATE bowline.tasks SET version = $2, status = $3, is_cancel_requested = $4, updated_at = $5, bytes = $6,
        status_message = $7, questions = $8, answers = $9, outcome = $10, leased_until = $11, journal_bytes = $12
    WHERE number = $1";

pub(super) const ADD_JOURNAL_BYTES: &str =
    "UPDATE bowline.tasks SET journal_bytes = journal_bytes + $2 WHERE number = $1";

pub(super) const RENEW: &str = "
    UPDATE bowline.tasks t SET leased_until = $4
    FROM unnest($2::bytea[], $3::bigint[]) AS held (id, attempt)
    WHERE t.id = held.id AND t.attempt = held.attempt AND t.owner = $1 AND t.leased_until IS NOT NULL
        AND (t.remove_at IS NULL OR t.remove_at > $5)
    RETURNING t.id, t.version";

/// The last column is the end of the lease that has expired.
pub(super) const CLAIM: &str = concat!(
    "WITH expired AS (
        SELECT number, leased_until FROM bowline.tasks
        WHERE leased_until <= $1 AND (remove_at IS NULL OR remove_at > $1)
        ORDER BY leased_until
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    )
    UPDATE bowline.tasks t
    SET owner = $3, attempt = t.attempt + 1, leased_until = $4, version = t.version + 1
    FROM expired, bowline.principals p
    WHERE t.number = expired.number AND p.id = t.principal
    RETURNING ",
    columns!(),
    ", expired.leased_until"
);

/// What is needed to remove a task, by its id.
pub(super) const REMOVABLE: &str = "
    SELECT number, id, principal, version, bytes + journal_bytes, leased_until IS NOT NULL, remove_at
    FROM bowline.tasks
    WHERE id = $1
    FOR UPDATE";

/// What is needed to remove tasks, by the time of their removal.
pub(super) const EXPIRED: &str = "
    SELECT number, id, principal, version, bytes + journal_bytes, leased_until IS NOT NULL, remove_at
    FROM bowline.tasks
    WHERE remove_at <= $1
    ORDER BY remove_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED";

pub(super) const REMOVE: &str = "DELETE FROM bowline.tasks WHERE number = $1";

pub(super) const NOTIFY: &str = "SELECT pg_notify('bowline_tasks', $1)";

pub(super) const LISTEN: &str = "LISTEN bowline_tasks";
