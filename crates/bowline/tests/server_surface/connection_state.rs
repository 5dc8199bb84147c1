//! State that handlers keep for the lifetime of a connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use bowline::testing::{self, MatrixCase, TestTransport};
use bowline::{Context, Server, Tool};

use crate::support::in_time;

struct Calls {
    count: AtomicU64,
    alive: Arc<()>,
    /// Refers to the connection, which must end nevertheless.
    _cx: Context,
}

/// References that show whether the states are dropped.
type Created = Arc<Mutex<Vec<Weak<()>>>>;

/// Returns the number of this call on its connection.
async fn count(cx: Context) -> String {
    let Some(state) = cx.connection_state() else {
        return "no connection".to_owned();
    };
    let created = cx.state::<Created>().unwrap();
    let calls = state.get_or_insert_with(|| {
        let calls = Calls {
            count: AtomicU64::new(0),
            alive: Arc::default(),
            _cx: cx.clone(),
        };
        created.lock().unwrap().push(Arc::downgrade(&calls.alive));
        calls
    });
    (calls.count.fetch_add(1, Ordering::Relaxed) + 1).to_string()
}

fn has_connection(case: MatrixCase) -> bool {
    let is_http = ![TestTransport::InProcess, TestTransport::Memory].contains(&case.transport);
    !(is_http && case.dialect.is_modern())
}

#[tokio::test]
async fn each_connection_has_its_own_state_which_ends_with_it() {
    for case in testing::matrix() {
        let created = Created::default();
        let server = Server::new("s", "1")
            .state(created.clone())
            .tool(Tool::new("count", count));
        let (one, other) = (case.serve(&server).connect, case.serve(&server).connect);
        let (one, other) = (one.await.unwrap(), other.await.unwrap());

        let mut counts = Vec::new();
        for client in [&one, &one, &other] {
            counts.push(client.call_tool("count", ()).await.unwrap().text());
        }

        match has_connection(case) {
            true => assert_eq!(counts, ["1", "2", "1"], "{case}"),
            false => assert_eq!(counts, ["no connection"; 3], "{case}"),
        }
        one.close().await.unwrap();
        other.close().await.unwrap();
        let created = std::mem::take(&mut *created.lock().unwrap());
        assert_eq!(created.len(), if has_connection(case) { 2 } else { 0 });
        in_time(async {
            while created.iter().any(|state| state.upgrade().is_some()) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}
