//! The SQL statements on tasks. A test checks that none of them scans a table.

/// A record with its row number, principal and journal size.
pub(super) const READ: &str = "
    SELECT t.number, t.principal, r.journal_bytes, t.id, p.name, t.run_mode, t.ttl, t.poll_interval, t.status_message,
        t.questions, t.answers, t.is_cancel_requested, t.status, t.outcome, t.created_at, t.updated_at, t.expires_at,
        t.remove_at, r.owner, r.attempt, r.leased_until, t.version, q.tool, q.arguments, q.meta, q.context
    FROM tasks t
    JOIN principals p ON p.id = t.principal
    JOIN runs r ON r.task = t.number
    JOIN requests q ON q.task = t.number
    WHERE t.id = ?1 AND (t.remove_at IS NULL OR t.remove_at > ?2)";

pub(super) const JOURNAL: &str = "
    SELECT j.kind, j.name, j.value
    FROM tasks t JOIN journal j ON j.task = t.number
    WHERE t.id = ?1 AND (t.remove_at IS NULL OR t.remove_at > ?2)
    ORDER BY j.number";

pub(super) const LIST: &str = "
    SELECT id, status, ttl, poll_interval, created_at, updated_at, status_message
    FROM tasks
    WHERE principal = (SELECT id FROM principals WHERE name = ?1)
        AND (created_at, id) > (?2, ?3)
        AND (remove_at IS NULL OR remove_at > ?4)
    ORDER BY created_at, id
    LIMIT ?5";

pub(super) const PRINCIPAL: &str = "SELECT id FROM principals WHERE name = ?1";

pub(super) const ADD_PRINCIPAL: &str = "INSERT INTO principals (name) VALUES (?1)";

pub(super) const USAGE: &str = "SELECT tasks, unfinished, bytes FROM principals WHERE id = ?1";

/// Adds to the usage of a principal and to that of all.
pub(super) const ADD_USAGE: &str = "
    UPDATE principals SET tasks = tasks + ?2, unfinished = unfinished + ?3, bytes = bytes + ?4
    WHERE id IN (0, ?1)";

pub(super) const REMOVE_UNUSED_PRINCIPAL: &str =
    "DELETE FROM principals WHERE id = ?1 AND id > 1 AND tasks = 0";

pub(super) const ADD_TASK: &str = "
    INSERT INTO tasks (id, principal, version, status, run_mode, is_cancel_requested, ttl, poll_interval, created_at,
        updated_at, expires_at, remove_at, bytes, status_message)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";

pub(super) const ADD_RUN: &str = "
    INSERT INTO runs (task, owner, attempt, leased_until, journal_bytes) VALUES (?1, ?2, ?3, ?4, ?5)";

pub(super) const ADD_REQUEST: &str =
    "INSERT INTO requests (task, tool, arguments, meta, context) VALUES (?1, ?2, ?3, ?4, ?5)";

pub(super) const ADD_ENTRY: &str =
    "INSERT INTO journal (task, kind, name, value) VALUES (?1, ?2, ?3, ?4)";

pub(super) const READ_ENTRY: &str =
    "SELECT value FROM journal WHERE task = ?1 AND kind = ?2 AND name = ?3";

pub(super) const REMOVE_JOURNAL: &str = "DELETE FROM journal WHERE task = ?1";

/// What an owner writes to: an unfinished task that it holds.
pub(super) const HELD: &str = "
    SELECT t.number, t.principal, t.version, t.bytes, r.journal_bytes
    FROM tasks t JOIN runs r ON r.task = t.number
    WHERE t.id = ?1 AND r.owner = ?2 AND r.attempt = ?3 AND r.leased_until IS NOT NULL
        AND (t.remove_at IS NULL OR t.remove_at > ?4)";

pub(super) const CHANGE: &str = "
    UPDATE tasks SET version = ?2, status = ?3, is_cancel_requested = ?4, updated_at = ?5, bytes = ?6,
        status_message = ?7, questions = ?8, answers = ?9, outcome = ?10
    WHERE number = ?1";

pub(super) const SET_VERSION: &str = "UPDATE tasks SET version = ?2 WHERE number = ?1";

pub(super) const SET_RUN: &str = "
    UPDATE runs SET owner = ?2, attempt = ?3, leased_until = ?4, journal_bytes = ?5 WHERE task = ?1";

pub(super) const SET_LEASE: &str = "UPDATE runs SET leased_until = ?2 WHERE task = ?1";

pub(super) const SET_JOURNAL_BYTES: &str = "UPDATE runs SET journal_bytes = ?2 WHERE task = ?1";

pub(super) const CLAIMABLE: &str = "
    SELECT t.id
    FROM runs r JOIN tasks t ON t.number = r.task
    WHERE r.leased_until <= ?1 AND (t.remove_at IS NULL OR t.remove_at > ?1)
    ORDER BY r.leased_until
    LIMIT ?2";

/// What is needed to remove a task, by its id.
pub(super) const REMOVABLE: &str = "
    SELECT t.number, t.id, t.principal, t.version, t.bytes + r.journal_bytes, r.leased_until IS NOT NULL, t.remove_at
    FROM tasks t JOIN runs r ON r.task = t.number
    WHERE t.id = ?1";

/// What is needed to remove tasks, by the time of their removal.
pub(super) const EXPIRED: &str = "
    SELECT t.number, t.id, t.principal, t.version, t.bytes + r.journal_bytes, r.leased_until IS NOT NULL, t.remove_at
    FROM tasks t JOIN runs r ON r.task = t.number
    WHERE t.remove_at <= ?1
    ORDER BY t.remove_at
    LIMIT ?2";

pub(super) const REMOVE: &str = "DELETE FROM tasks WHERE number = ?1";

pub(super) const ADD_CHANGE: &str = "INSERT INTO changes (task, version) VALUES (?1, ?2)";

pub(super) const LAST_CHANGE: &str = "SELECT ifnull(max(number), 0) FROM changes";

pub(super) const CHANGES: &str = "
    SELECT task, version FROM changes WHERE number > ?1 AND number <= ?2 ORDER BY number";

pub(super) const FORGET_CHANGES: &str = "DELETE FROM changes WHERE number <= ?1";

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn no_statement_scans_a_table() {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch(include_str!("schema.sql"))
            .unwrap();

        for sql in ALL {
            for step in plan(&connection, sql) {
                assert!(!step.starts_with("SCAN"), "{step} in {sql}");
            }
        }
    }

    #[test]
    fn sorted_reads_of_many_tasks_follow_an_index() {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch(include_str!("schema.sql"))
            .unwrap();

        for (sql, index) in [
            (LIST, "tasks_of_principal"),
            (CLAIMABLE, "runs_to_claim"),
            (EXPIRED, "tasks_to_remove"),
        ] {
            let plan = plan(&connection, sql).join("\n");
            assert!(plan.contains(index), "{plan}");
            assert!(!plan.contains("TEMP B-TREE"), "{plan}");
        }
    }

    #[test]
    fn the_list_of_statements_is_complete() {
        let defined = include_str!("statements.rs").matches("\npub(super) const ");

        assert_eq!(ALL.len(), defined.count());
    }

    fn plan(connection: &Connection, sql: &str) -> Vec<String> {
        let mut statement = connection
            .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
            .unwrap();
        // Without values the parameters are NULL, which does not change the plan.
        let mut rows = statement.raw_query();
        let mut steps = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            steps.push(row.get("detail").unwrap());
        }
        steps
    }

    const ALL: &[&str] = &[
        READ,
        JOURNAL,
        LIST,
        PRINCIPAL,
        ADD_PRINCIPAL,
        USAGE,
        ADD_USAGE,
        REMOVE_UNUSED_PRINCIPAL,
        ADD_TASK,
        ADD_RUN,
        ADD_REQUEST,
        ADD_ENTRY,
        READ_ENTRY,
        REMOVE_JOURNAL,
        HELD,
        CHANGE,
        SET_VERSION,
        SET_RUN,
        SET_LEASE,
        SET_JOURNAL_BYTES,
        CLAIMABLE,
        REMOVABLE,
        EXPIRED,
        REMOVE,
        ADD_CHANGE,
        LAST_CHANGE,
        CHANGES,
        FORGET_CHANGES,
    ];
}
