//! Clones of a server are the same server, and handlers reach it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bowline::client::Change;
use bowline::exchange::{Outcome, Request};
use bowline::layer::Next;
use bowline::server::{ChangeBus, ChangeReceiver, Completer, LocalChangeBus, ServerChange};
use bowline::types::{ListToolsRequest, PaginatedRequestParams};
use bowline::{
    Client, Context, ErrorCode, Json, Prompt, Resource, ResourceTemplate, RpcError, Server, Tool,
};
use serde_json::json;

use crate::support::{
    CLIENT_TRANSPORTS, ClientTransport, all_lists, echo, in_time, peer_error, prompt, read_text,
};

#[tokio::test(start_paused = true)]
async fn what_a_clone_adds_is_served_by_all_and_announced() {
    for transport in CLIENT_TRANSPORTS {
        let server = Server::new("s", "1")
            .tool(echo("echo"))
            .prompt(Prompt::raw("p", async |_, _| Ok("text")))
            .resource(Resource::text("docs://r", "r", "text"));
        let client = transport.connect(&server).await;
        let mut changes = client.subscribe(all_lists()).await.unwrap();
        if let ClientTransport::Wire(_) = transport {
            // A legacy server notifies a client once it has received `notifications/initialized`.
            client.list_tools().await.unwrap();
        }

        let (changed, ()) = tokio::join!(
            async {
                let mut changed = Vec::new();
                while changed.len() < 4 {
                    changed.extend(in_time(changes.next()).await.unwrap());
                }
                changed
            },
            async {
                tokio::task::yield_now().await;
                let page =
                    ResourceTemplate::raw("docs://{page}/p", "page", async |_, _| Ok("page"));
                let inner = Server::new("inner", "1").prompt(haiku());
                let clone = server.clone();
                drop(
                    clone
                        .tool(echo("new"))
                        .resource(Resource::text("docs://new", "new", "new"))
                        .resource_template(page)
                        .mount("inner", &inner),
                );
            },
        );

        let expected = [
            Change::Tools,
            Change::Resources,
            Change::Resources,
            Change::Prompts,
        ];
        assert_eq!(changed, expected, "{transport:?}");
        let called = client.call_tool("new", json!({})).await.unwrap();
        assert_eq!(called.text(), "{}");
        assert_eq!(read_text(&client, "docs://new").await, "new");
        assert_eq!(read_text(&client, "docs://1/p").await, "page");
        assert!(prompt(&client, "inner_haiku", json!({})).await.is_ok());
    }
}

#[test]
fn an_error_of_one_clone_is_reported_by_all() {
    let server = Server::new("s", "1").tool(echo("echo"));
    let languages = || Completer::for_prompt("haiku", "topic", async |_, _| Ok(vec!["rain"]));

    drop(
        server
            .clone()
            .tool(echo("echo"))
            .prompt(haiku())
            .prompt(haiku())
            .completer(languages())
            .completer(languages()),
    );

    assert_eq!(
        server.check().unwrap_err().to_string(),
        "duplicate tool name `echo`; duplicate prompt name `haiku`; \
         duplicate completer for argument `topic` of prompt `haiku`"
    );
    assert_eq!(server.tools().names(), ["echo"]);
}

#[tokio::test(start_paused = true)]
async fn settings_apply_to_connections_that_start_afterwards() {
    async fn refuse(request: Request, next: Next) -> Outcome {
        match &*request.method {
            "tools/call" => Err(RpcError::new(ErrorCode::INVALID_REQUEST, "refused")),
            _ => next.run(request).await,
        }
    }

    for transport in CLIENT_TRANSPORTS {
        let server = Server::new("s", "1").tool(echo("a")).tool(echo("b"));
        let before = transport.connect(&server).await;
        assert_eq!(first_page(&before).await, 2, "{transport:?}");

        drop(server.clone().page_size(1).layer(refuse));
        let after = transport.connect(&server).await;
        assert_eq!(first_page(&before).await, 2, "{transport:?}");
        assert_eq!(first_page(&after).await, 1, "{transport:?}");
        assert_eq!(first_page(&before).await, 2, "{transport:?}");
        assert!(before.call_tool("a", ()).await.is_ok(), "{transport:?}");
        assert!(after.call_tool("a", ()).await.is_err(), "{transport:?}");
    }
}

/// Returns the number of tools on the first page.
async fn first_page(client: &Client) -> usize {
    let params = PaginatedRequestParams::default();
    let page = client.request::<ListToolsRequest>(&params).await.unwrap();
    page.tools.len()
}

#[tokio::test(start_paused = true)]
async fn building_a_server_publishes_no_changes() {
    struct CountingBus(LocalChangeBus, Arc<AtomicUsize>);

    impl ChangeBus for CountingBus {
        fn publish(&self, change: ServerChange) {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.publish(change);
        }

        fn subscribe(&self) -> ChangeReceiver {
            self.0.subscribe()
        }
    }

    let published = Arc::new(AtomicUsize::new(0));
    let bus = CountingBus(LocalChangeBus::default(), published.clone());
    let server = Server::new("s", "1").change_bus(bus).tool(echo("a"));
    assert_eq!(published.load(Ordering::Relaxed), 0);

    let _client = Client::in_process(&server).await.unwrap();
    let _server = server.tool(echo("b"));

    assert_eq!(published.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_reaches_the_server_that_answers_it() {
    async fn add(cx: Context) -> bowline::Result<()> {
        cx.server().tools().add(echo("added"))
    }

    for transport in CLIENT_TRANSPORTS {
        let inner = Server::new("inner", "1").tool(Tool::new("add", add));
        let server = Server::new("outer", "1").mount("inner", &inner);
        let client = transport.connect(&server).await;

        client.call_tool("inner_add", ()).await.unwrap();

        assert_eq!(server.tools().names(), ["added", "inner_add"]);
        assert_eq!(inner.tools().names(), ["add"]);
        assert!(client.call_tool("added", ()).await.is_ok(), "{transport:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_context_without_a_server_fails_its_own_request_only() {
    async fn respond(request: Request, cx: Context) -> Outcome {
        if request.method == "com.example/server" {
            drop(cx.server());
        }
        Ok(Json::empty_object())
    }

    let client = Client::in_process(&respond)
        .protocol_version("2026-07-28")
        .await
        .unwrap();

    let failed = client.request_raw("com.example/server", ()).await;
    let other = client.request_raw("com.example/other", ()).await;

    let failed = peer_error(failed.unwrap_err());
    assert_eq!(failed.code, ErrorCode::INTERNAL_ERROR);
    assert!(other.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_server_is_freed_with_its_last_handle_and_connection() {
    async fn reach(cx: Context) -> usize {
        cx.server().tools().add(echo("added")).unwrap();
        let nested = Client::in_process(&cx.server()).await.unwrap();
        nested.list_tools().await.unwrap().len()
    }

    for transport in CLIENT_TRANSPORTS {
        let (server, state) = server_with_state();
        let server = server.tool(Tool::new("reach", reach));
        let client = transport.connect(&server).await;
        let changes = client.subscribe(all_lists()).await.unwrap();
        client.call_tool("reach", ()).await.unwrap();

        drop(server);
        assert!(state.upgrade().is_some(), "{transport:?}");
        drop(changes);
        client.close().await.unwrap();
        in_time(async {
            while state.upgrade().is_some() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn an_http_service_that_is_dropped_frees_its_server() {
    let (server, state) = server_with_state();
    let service = server.http();

    drop((server, service));

    assert!(state.upgrade().is_none());
}

/// Returns a server with state, and a reference that shows whether the state is dropped.
fn server_with_state() -> (Server, Weak<()>) {
    let state = Arc::new(());
    let dropped = Arc::downgrade(&state);
    (
        Server::new("s", "1").tool(echo("echo")).state(state),
        dropped,
    )
}

fn haiku() -> Prompt {
    Prompt::raw("haiku", async |_, _| Ok("Write a haiku.")).optional("topic", "what it is about")
}
