//! What a client learns of the failure of a store.

use bowline_types::{ErrorCode, Json, RpcError};
use serde_json::json;

use crate::store::{Quota, StoreError};

/// Converts the error of a store to what is sent to the client: without paths and causes, which are logged here.
pub(super) fn to_rpc_error(error: &StoreError) -> RpcError {
    let (message, data) = match error {
        StoreError::QuotaExceeded { quota, limit } => (
            format!(
                "too many {quota} (limit {limit}); try again when tasks have finished or expired"
            ),
            Some(json!({"limit": quota_name(*quota), "max": limit, "isRetryable": true})),
        ),
        StoreError::TooLarge { bytes, limit } => (
            format!("task of {bytes} bytes exceeds the limit of {limit} bytes"),
            Some(json!({"limit": "task_bytes", "max": limit, "isRetryable": false})),
        ),
        StoreError::Busy { .. } => retryable("the task store is busy; try again later"),
        StoreError::Full { .. } => retryable("the task store is full; try again later"),
        StoreError::Unavailable { .. } | StoreError::Randomness { .. } => {
            retryable("failed to access the task store; try again later")
        }
        StoreError::Corrupt { .. } => permanent("the task store is damaged"),
        StoreError::ReadOnly { .. } => permanent("the task store is read-only"),
        StoreError::NewerSchema { .. }
        | StoreError::ForeignData { .. }
        | StoreError::AlreadyExists { .. } => permanent("failed to access the task store"),
    };
    match error {
        // The client's doing, and expected under load.
        StoreError::QuotaExceeded { .. } | StoreError::TooLarge { .. } => {
            tracing::debug!(%error, "refused by the task store");
        }
        _ => tracing::warn!(error = %chain(error), "failed to access the task store"),
    }
    let mut rpc_error = RpcError::new(ErrorCode::INTERNAL_ERROR, message);
    rpc_error.data = data.map(Json::from);
    rpc_error
}

/// Formats an error with its causes, for logs.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn retryable(message: &str) -> (String, Option<serde_json::Value>) {
    (message.to_owned(), Some(json!({"isRetryable": true})))
}

fn permanent(message: &str) -> (String, Option<serde_json::Value>) {
    (message.to_owned(), Some(json!({"isRetryable": false})))
}

fn quota_name(quota: Quota) -> &'static str {
    match quota {
        Quota::Tasks => "tasks",
        Quota::UnfinishedTasks => "unfinished_tasks",
        Quota::Bytes => "principal_bytes",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_client_does_not_see_paths_and_causes() {
        let store: Arc<str> = "the task database /srv/secret.db".into();
        let source = Arc::new(std::io::Error::other("/srv/secret.db: no such inode"));
        for error in [
            StoreError::Unavailable {
                store: store.clone(),
                source,
            },
            StoreError::Busy {
                store: store.clone(),
                reason: "locked",
            },
            StoreError::Full {
                store: store.clone(),
                reason: "disk full".into(),
            },
            StoreError::Corrupt {
                store: store.clone(),
                detail: "page 7 of /srv/secret.db".into(),
            },
            StoreError::ReadOnly {
                store: store.clone(),
            },
            StoreError::ForeignData { store },
        ] {
            let rpc_error = to_rpc_error(&error);

            assert_eq!(rpc_error.code, ErrorCode::INTERNAL_ERROR);
            assert!(!rpc_error.to_string().contains("secret"), "{rpc_error}");
            assert!(rpc_error.message.contains("the task store"), "{rpc_error}");
        }
    }

    #[test]
    fn an_exceeded_quota_is_named_and_can_be_retried() {
        let error = to_rpc_error(&StoreError::QuotaExceeded {
            quota: Quota::UnfinishedTasks,
            limit: 20,
        });

        assert_eq!(
            error.message,
            "too many unfinished tasks (limit 20); try again when tasks have finished or expired"
        );
        let data: serde_json::Value = error.data.unwrap().decode().unwrap();
        let expected = json!({"limit": "unfinished_tasks", "max": 20, "isRetryable": true});
        assert_eq!(data, expected);
    }
}
