//! `Context::on_discarded`, over every transport in every version.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline::testing::{eventually, matrix};
use bowline::{Context, Server, Tool};
use tokio::sync::Notify;

use crate::support::in_time;

#[derive(Clone, Default)]
struct Observed {
    discarded: Arc<AtomicUsize>,
    started: Arc<Notify>,
}

impl Observed {
    fn watch(cx: &Context) -> Self {
        let observed = cx.state::<Self>().unwrap();
        let discarded = observed.discarded.clone();
        cx.on_discarded(move || {
            discarded.fetch_add(1, Ordering::SeqCst);
        });
        observed.clone()
    }

    fn discarded(&self) -> usize {
        self.discarded.load(Ordering::SeqCst)
    }
}

async fn answer(cx: Context) -> &'static str {
    Observed::watch(&cx);
    "done"
}

async fn wait(cx: Context) -> &'static str {
    Observed::watch(&cx).started.notify_one();
    std::future::pending().await
}

fn server(observed: &Observed) -> Server {
    Server::new("s", "1")
        .state(observed.clone())
        .tool(Tool::new("answer", answer))
        .tool(Tool::new("wait", wait))
}

#[tokio::test]
async fn an_answer_that_is_sent_is_not_discarded() {
    for case in matrix() {
        let observed = Observed::default();
        let client = case.serve(&server(&observed)).connect.await.unwrap();

        assert_eq!(
            client.call_tool("answer", ()).await.unwrap().text(),
            "done",
            "{case}"
        );

        client.close().await.unwrap();
        assert_eq!(observed.discarded(), 0, "{case}");
    }
}

#[tokio::test]
async fn the_answer_of_a_dropped_call_is_discarded_once() {
    for case in matrix() {
        let observed = Observed::default();
        let client = case.serve(&server(&observed)).connect.await.unwrap();

        let call = tokio::spawn({
            let client = client.clone();
            async move { client.call_tool("wait", ()).await }
        });
        in_time(observed.started.notified()).await;
        call.abort();

        assert!(eventually(|| observed.discarded() == 1).await, "{case}");
        client.close().await.unwrap();
        assert_eq!(observed.discarded(), 1, "{case}");
    }
}
