//! The laws of task stores, for every store of this crate, and what happens when one fails.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed test panics")]

mod fixture;
mod laws;
#[cfg(feature = "sqlite")]
mod sqlite;

/// Makes a test of each law for each store.
macro_rules! test_laws {
    ($($law:ident)*) => {
        mod memory {
            $(
                #[tokio::test]
                async fn $law() {
                    crate::laws::$law(&crate::fixture::memory).await;
                }
            )*
        }

        #[cfg(feature = "sqlite")]
        mod sqlite_laws {
            $(
                #[tokio::test]
                async fn $law() {
                    crate::laws::$law(&crate::sqlite::two_processes).await;
                }
            )*
        }
    };
}

test_laws! {
    a_created_task_is_read_by_every_process
    an_id_is_used_once
    a_final_state_is_written_once
    of_many_final_states_one_wins
    an_update_needs_the_current_version
    a_change_without_effect_stores_nothing
    a_process_that_lost_its_lease_writes_nothing
    an_expired_lease_is_held_until_it_is_claimed
    an_entry_is_appended_once_by_kind_and_name
    a_journal_keeps_its_order_and_ends_with_its_task
    an_expired_lease_is_claimed_and_no_other
    every_task_is_claimed_by_one_process
    a_released_task_is_claimed_at_once
    renewing_returns_lost_and_changed_tasks
    an_expired_record_is_absent_and_then_removed
    a_question_is_answered_once_and_its_key_is_not_reused
    a_cancel_request_is_a_flag
    quotas_apply_to_each_principal
    a_full_store_lets_its_tasks_finish
    tasks_of_a_principal_are_listed_in_pages
    a_deleted_task_is_gone_with_its_journal
    an_absent_task_has_no_effects
    changes_reach_every_process
    a_listener_that_is_too_slow_is_told_so
}
