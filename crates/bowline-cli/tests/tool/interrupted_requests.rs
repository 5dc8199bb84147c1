//! Ctrl-C during other requests than calls: the command sends the cancel before it ends.

use std::time::Duration;

use bowline::exchange::Request;
use bowline::layer::Next;
use bowline::prelude::*;
use bowline::server::Completer;
use bowline::testing::{HandlerCounter, HandlerCounts};
use bowline::{Prompt, Resource};
use bowline_tasks::Tasks;

use crate::support::{Program, VERSIONS, in_time};

/// Works.
#[tool(task(resumable))]
async fn work() -> &'static str {
    "done"
}

/// Serves until the test ends. The requests that the test interrupts are never answered, and are counted.
async fn serve() -> (String, HandlerCounter) {
    let handlers = HandlerCounter::default();
    let endless = handlers.clone();
    let layer = move |request: Request, next: Next| {
        let endless = endless.clone();
        async move {
            match ENDLESS.contains(&&*request.method) {
                true => endless.run(std::future::pending()).await,
                false => next.run(request).await,
            }
        }
    };
    let greet = Prompt::raw("greet", async |_, _| Ok("Hello!")).required("language", "which one");
    let languages = Completer::for_prompt("greet", "language", async |input, _| {
        Ok(input.matching(["Danish"]))
    });
    let server = Server::new("endless", "1.0.0")
        .tool(work)
        .resource(Resource::text("notes://a", "a", "text"))
        .prompt(greet)
        .completer(languages)
        .extension(Tasks::in_memory())
        .layer(layer);
    let bound = server.http().bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/mcp", bound.local_addr());
    tokio::spawn(bound.serve());
    (url, handlers)
}

/// Fails with the words of the command if the counts do not become so.
async fn wait_for(
    handlers: &HandlerCounter,
    words: &[&str],
    condition: impl FnMut(&HandlerCounts) -> bool,
) {
    let waiting = tokio::time::timeout(Duration::from_secs(60), handlers.wait_for(condition));
    if waiting.await.is_err() {
        panic!("{words:?}: {:?}", handlers.counts());
    }
}

const ENDLESS: &[&str] = &[
    "resources/read",
    "prompts/get",
    "completion/complete",
    "tasks/get",
    "tasks/result",
    "tools/call",
];

#[tokio::test]
async fn an_interrupted_request_over_http_stops_at_the_server() {
    in_time(async {
        let (url, handlers) = serve().await;
        let mut interrupted = 0;
        let commands: [&[&str]; 6] = [
            &["read", &url, "notes://a"],
            &["prompt", &url, "greet", "language=Danish"],
            &["complete", &url, "greet", "language", "D"],
            &["tasks", "wait", &url, "some-id"],
            &["call", &url, "work", "--args", "{}", "--as-task"],
            &["call", &url, "work", "--args", "{}", "--repeat", "3"],
        ];
        for version in VERSIONS {
            for words in commands {
                let words = [words, &["--protocol-version", version]].concat();
                interrupted += 1;
                let program = Program::start(&words);
                wait_for(&handlers, &words, |it| it.started == interrupted).await;

                program.interrupt().await;
                let ended = program.end().await;

                assert_eq!(ended.code, Some(130), "{words:?}: {ended:?}");
                wait_for(&handlers, &words, |it| it.dropped == interrupted).await;
            }
        }
    })
    .await;
}
