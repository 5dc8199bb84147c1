//! What differs between callers: entries that only some of them see, and lists that callbacks supply.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bowline::client::{Change, ChangeFilter};
use bowline::server::Completer;
use bowline::types::{
    self, CacheScope, CompleteArgument, CompleteRequestParams, ListResourcesRequest,
    PaginatedRequestParams, PromptReference, ResourceTemplateReference,
};
use bowline::{
    Client, Context, Error, ErrorCode, Prompt, Resource, ResourceTemplate, RpcError, Server, Tool,
    testing,
};
use serde_json::json;

use crate::support::{
    CLIENT_TRANSPORTS, ClientTransport, complete, in_time, peer_error, prompt, read, read_text,
    serve,
};

async fn connect_as(name: &str, transport: ClientTransport, server: &Server) -> Client {
    let connect = match transport {
        ClientTransport::InProcess => Client::in_process(server),
        ClientTransport::Wire(version) => {
            Client::from_wire(serve(server)).protocol_version(version)
        }
    };
    connect.client_info(name, "1").await.unwrap()
}

fn name_of(cx: &Context) -> String {
    let caller = cx.caller().implementation.as_ref();
    caller.map_or_else(String::new, |caller| caller.name.clone())
}

fn is_admin(cx: &Context) -> bool {
    name_of(cx) == "admin"
}

fn template(text: &str, contents: &'static str) -> ResourceTemplate {
    ResourceTemplate::raw(text, "t", move |_, _| async move { Ok(contents) }).unwrap()
}

/// A server with a public and a hidden entry of each kind.
fn server_with_secrets() -> Server {
    let topics = || Completer::for_prompt("secret", "topic", async |_, _| Ok(vec!["plans"]));
    let pages = Completer::for_template("vault://{page}", "page", async |_, _| Ok(vec!["1"]));
    let languages = Completer::for_prompt("public", "topic", async |_, _| Ok(vec!["rain"]));
    let text = async |_, _| Ok("text");
    Server::new("s", "1")
        .prompt(Prompt::raw("public", text).optional("topic", ""))
        .prompt(
            Prompt::raw("secret", text)
                .optional("topic", "")
                .visible_to(is_admin),
        )
        .resource(Resource::text("docs://public", "public", "public"))
        .resource(Resource::text("docs://secret", "secret", "secret").visible_to(is_admin))
        .resource(Resource::text("plain://x", "x", "hidden").visible_to(is_admin))
        .resource_template(template("plain://{x}", "template"))
        .resource_template(template("vault://{page}", "vault").visible_to(is_admin))
        .resource_template(template("vault://{page}{?q}", "fallback"))
        .completer(topics())
        .completer(pages)
        .completer(languages.visible_to(is_admin))
}

async fn complete_prompt(client: &Client, name: &str) -> Result<Vec<String>, Error> {
    let argument = CompleteArgument::new("topic", "");
    let params = CompleteRequestParams::new(PromptReference::new(name), argument);
    complete(client, params)
        .await
        .map(|completion| completion.values)
}

async fn complete_page(client: &Client, template: &str) -> Result<Vec<String>, Error> {
    let reference = ResourceTemplateReference::new(template);
    let params = CompleteRequestParams::new(reference, CompleteArgument::new("page", ""));
    complete(client, params)
        .await
        .map(|completion| completion.values)
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_a_caller_does_not_see_is_unknown_to_it() {
    for transport in CLIENT_TRANSPORTS {
        let server = server_with_secrets();
        let guest = connect_as("guest", transport, &server).await;

        let prompts = guest.list_prompts().await.unwrap();
        let resources = guest.list_resources().await.unwrap();
        let templates = guest.list_resource_templates().await.unwrap();
        assert_eq!(
            prompts.iter().map(|it| &*it.name).collect::<Vec<_>>(),
            ["public"]
        );
        let uris: Vec<_> = resources.iter().map(|it| &*it.uri).collect();
        assert_eq!(uris, ["docs://public"], "{transport:?}");
        let texts: Vec<_> = templates.iter().map(|it| &*it.uri_template).collect();
        assert_eq!(
            texts,
            ["plain://{x}", "vault://{page}{?q}"],
            "{transport:?}"
        );

        for (hidden, unknown) in [
            (
                prompt(&guest, "secret", json!({})).await.map(drop),
                prompt(&guest, "sEcret", json!({})).await.map(drop),
            ),
            (
                read(&guest, "docs://secret").await.map(drop),
                read(&guest, "docs://sEcret").await.map(drop),
            ),
            (
                complete_prompt(&guest, "secret").await.map(drop),
                complete_prompt(&guest, "sEcret").await.map(drop),
            ),
            (
                complete_page(&guest, "vault://{page}").await.map(drop),
                complete_page(&guest, "vAult://{page}").await.map(drop),
            ),
        ] {
            let hidden = peer_error(hidden.unwrap_err());
            let unknown = peer_error(unknown.unwrap_err());
            let renamed = format!("{unknown:?}").replace("sEcret", "secret");
            assert_eq!(format!("{hidden:?}"), renamed, "{transport:?}");
        }
        // As if the hidden entry was not there, another one answers.
        assert_eq!(read_text(&guest, "plain://x").await, "template");
        assert_eq!(read_text(&guest, "vault://1").await, "fallback");
        assert!(complete_prompt(&guest, "public").await.unwrap().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_a_caller_sees_is_listed_and_used() {
    for transport in CLIENT_TRANSPORTS {
        let server = server_with_secrets();
        // A page that was sent to another caller first must not be sent to this one.
        let guest = connect_as("guest", transport, &server).await;
        guest.list_prompts().await.unwrap();
        let admin = connect_as("admin", transport, &server).await;

        assert_eq!(admin.list_prompts().await.unwrap().len(), 2);
        assert_eq!(admin.list_resources().await.unwrap().len(), 3);
        assert_eq!(admin.list_resource_templates().await.unwrap().len(), 3);
        assert!(prompt(&admin, "secret", json!({})).await.is_ok());
        assert_eq!(read_text(&admin, "docs://secret").await, "secret");
        assert_eq!(read_text(&admin, "plain://x").await, "hidden");
        assert_eq!(read_text(&admin, "vault://1").await, "vault");
        assert_eq!(complete_prompt(&admin, "secret").await.unwrap(), ["plans"]);
        assert_eq!(complete_prompt(&admin, "public").await.unwrap(), ["rain"]);
        assert_eq!(
            complete_page(&admin, "vault://{page}").await.unwrap(),
            ["1"]
        );
    }
}

/// A server whose callers have files of their own.
fn server_with_files() -> Server {
    async fn files(cx: Context) -> Vec<types::Resource> {
        let owner = name_of(&cx);
        let files = ["c", "a", "e"].into_iter();
        files
            .map(|file| types::Resource::new(format!("file://{owner}/{file}"), file))
            .collect()
    }

    Server::new("s", "1")
        .resource(Resource::text("file://ada/b", "static", "static"))
        .resource(Resource::text("file://ada/c", "static", "static"))
        .resource(Resource::text("file://ada/d", "static", "static").visible_to(is_admin))
        .resource_list(files)
}

#[tokio::test(start_paused = true)]
async fn supplied_resources_are_merged_and_paged_for_each_caller() {
    for transport in CLIENT_TRANSPORTS {
        let server = server_with_files()
            .page_size(2)
            .cache(Duration::from_secs(60), CacheScope::PUBLIC);
        let ada = connect_as("ada", transport, &server).await;
        let bob = connect_as("bob", transport, &server).await;

        let of_ada = ada.list_resources().await.unwrap();
        let of_bob = bob.list_resources().await.unwrap();

        let entries: Vec<_> = of_ada.iter().map(|it| (&*it.uri, &*it.name)).collect();
        let expected = [
            ("file://ada/a", "a"),
            ("file://ada/b", "static"),
            ("file://ada/c", "static"),
            ("file://ada/e", "e"),
        ];
        assert_eq!(entries, expected, "{transport:?}");
        assert_eq!(of_bob.len(), 5, "{transport:?}");
        let params = PaginatedRequestParams::default();
        let page = ada.request::<ListResourcesRequest>(&params).await.unwrap();
        assert_eq!(page.resources.len(), 2);
        if transport == ClientTransport::InProcess {
            assert_eq!(page.cache_scope, Some(CacheScope::PRIVATE));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cursor_of_supplied_resources_stays_valid_when_they_change() {
    let rounds = Arc::new(AtomicUsize::new(0));
    let server = Server::new("s", "1").page_size(2).resource_list(move |_| {
        let names = match rounds.fetch_add(1, Ordering::Relaxed) {
            0 => ["a", "b", "c", "d"],
            _ => ["a", "bb", "c", "e"],
        };
        async move { names.map(|name| types::Resource::new(name, name)).to_vec() }
    });
    let client = ClientTransport::InProcess.connect(&server).await;

    let listed = client.list_resources().await.unwrap();

    let uris: Vec<_> = listed.iter().map(|it| &*it.uri).collect();
    assert_eq!(uris, ["a", "b", "bb", "c", "e"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_is_an_error_and_a_mounted_one_finds_its_state() {
    #[derive(Clone)]
    struct Prefix(&'static str);

    async fn list(cx: Context) -> Result<Vec<types::Resource>, RpcError> {
        let prefix = cx
            .state::<Prefix>()
            .ok_or_else(|| RpcError::internal("no prefix"))?;
        Ok(vec![types::Resource::new(format!("{}://x", prefix.0), "x")])
    }

    for transport in CLIENT_TRANSPORTS {
        let failing = Server::new("failing", "1").resource_list(list);
        let client = transport.connect(&failing).await;
        let error = peer_error(client.list_resources().await.unwrap_err());
        assert_eq!(error.code, ErrorCode::INTERNAL_ERROR);

        let inner = Server::new("inner", "1")
            .state(Prefix("inner"))
            .resource_list(list);
        let outer = Server::new("outer", "1")
            .state(Prefix("outer"))
            .resource_list(list);
        let client = transport.connect(&outer.mount("inner", &inner)).await;
        let listed = client.list_resources().await.unwrap();
        let uris: Vec<_> = listed.iter().map(|it| &*it.uri).collect();
        assert_eq!(uris, ["inner://x", "outer://x"], "{transport:?}");
    }
}

/// Before 2025-06-18 there is no `context`; in process, too, it is dropped.
#[tokio::test(start_paused = true)]
async fn a_completer_gets_the_other_arguments_in_versions_that_have_them() {
    let dishes = Completer::for_prompt("order", "dish", async |input, _| {
        Ok(input.arguments.values().cloned().collect::<Vec<_>>())
    });
    let order = Prompt::raw("order", async |_, _| Ok("text")).optional("dish", "");
    let server = Server::new("menu", "1.0.0").prompt(order).completer(dishes);
    for case in testing::matrix() {
        let client = case.serve(&server).connect.await.unwrap();
        let complete = client.complete(PromptReference::new("order"), "dish", "");

        let completion = complete.context_argument("cuisine", "italian").await;

        let has_context = !["2024-11-05", "2025-03-26"].contains(&case.dialect.version);
        let expected: &[&str] = if has_context { &["italian"] } else { &[] };
        assert_eq!(completion.unwrap().values, expected, "{case}");
    }
}

#[test]
fn a_completer_for_an_unknown_argument_is_reported() {
    let completer =
        |name, argument| Completer::for_prompt(name, argument, async |_, _| Ok(vec!["x"]));
    let of_template = Completer::for_template("docs://{a}", "b", async |_, _| Ok(vec!["x"]));
    let other = Completer::for_template("docs://{b}", "b", async |_, _| Ok(vec!["x"]));
    let server = Server::new("s", "1")
        .completer(completer("p", "known"))
        .completer(completer("p", "unknown"))
        .completer(completer("q", "known"))
        .completer(of_template)
        .completer(other)
        .prompt(Prompt::raw("p", async |_, _| Ok("text")).optional("known", ""))
        .resource_template(template("docs://{a}", "text"));

    assert_eq!(
        server.check().unwrap_err().to_string(),
        "completer for unknown argument `unknown` of prompt `p`; \
         completer for unknown argument `known` of prompt `q`; \
         completer for unknown variable `b` of template `docs://{a}`; \
         completer for unknown variable `b` of template `docs://{b}`"
    );
}

#[test]
fn completers_are_removed_with_their_prompt_or_template() {
    let haiku = || Prompt::raw("haiku", async |_, _| Ok("text"));
    let completer = |argument| Completer::for_prompt("haiku", argument, async |_, _| Ok(vec!["x"]));
    let pages = Completer::for_template("docs://{page}", "page", async |_, _| Ok(vec!["x"]));
    let server = Server::new("s", "1")
        .prompt(haiku().optional("topic", "").optional("style", ""))
        .resource_template(template("docs://{page}", "text"))
        .completer(completer("topic"))
        .completer(completer("style"))
        .completer(pages);
    assert!(server.check().is_ok());

    server.prompts().add(haiku().optional("topic", ""));
    assert!(server.check().is_ok());
    server.prompts().remove("haiku");
    assert!(server.check().is_ok());
    server.resources().remove_template("docs://{page}");
    assert!(server.check().is_ok());
}

/// The state of a mounted server.
struct Admins(&'static str);

/// A server whose filters read its state.
fn inner_with_secrets() -> Server {
    fn is_listed(cx: &Context) -> bool {
        let admins = cx.state::<Admins>();
        admins.is_some_and(|admins| admins.0 == name_of(cx))
    }

    let topics = Completer::for_prompt("p", "topic", async |_, _| Ok(vec!["plans"]));
    let text = async |_, _| Ok("text");
    Server::new("inner", "1")
        .state(Admins("admin"))
        .tool(Tool::new("t", async || "called").visible_to(is_listed))
        .prompt(
            Prompt::raw("p", text)
                .optional("topic", "")
                .visible_to(is_listed),
        )
        .resource(Resource::text("docs://r", "r", "read").visible_to(is_listed))
        .resource_template(template("vault://{x}", "matched").visible_to(is_listed))
        .completer(topics.visible_to(is_listed))
        .resource_subscriptions()
}

#[tokio::test(start_paused = true)]
async fn a_filter_of_a_mounted_entry_finds_the_state_of_its_server() {
    for transport in CLIENT_TRANSPORTS {
        // Another value of the same type, which must not take precedence.
        let outer = Server::new("outer", "1").state(Admins("guest"));
        let server = outer.mount("in", &inner_with_secrets());
        let admin = connect_as("admin", transport, &server).await;
        let guest = connect_as("guest", transport, &server).await;

        assert_eq!(admin.list_tools().await.unwrap().len(), 1, "{transport:?}");
        assert_eq!(admin.list_prompts().await.unwrap().len(), 1);
        assert_eq!(admin.list_resources().await.unwrap().len(), 1);
        assert_eq!(admin.list_resource_templates().await.unwrap().len(), 1);
        let called = admin.call_tool("in_t", ()).await.unwrap();
        assert_eq!(called.text(), "called");
        assert!(prompt(&admin, "in_p", json!({})).await.is_ok());
        assert_eq!(read_text(&admin, "docs://r").await, "read");
        assert_eq!(read_text(&admin, "vault://1").await, "matched");
        assert_eq!(complete_prompt(&admin, "in_p").await.unwrap(), ["plans"]);
        let filter = || ChangeFilter::new().resource("docs://r");
        let mut updates = admin.subscribe(filter()).await.unwrap();
        server.changed().resource_updated("docs://r");
        let update = in_time(updates.next()).await.unwrap();
        assert_eq!(update, Some(Change::Resource("docs://r".to_owned())));

        assert!(guest.list_tools().await.unwrap().is_empty());
        assert!(guest.list_prompts().await.unwrap().is_empty());
        assert!(guest.list_resources().await.unwrap().is_empty());
        assert!(guest.call_tool("in_t", ()).await.is_err());
        assert!(prompt(&guest, "in_p", json!({})).await.is_err());
        assert!(read(&guest, "docs://r").await.is_err());
        assert!(read(&guest, "vault://1").await.is_err());
        assert!(complete_prompt(&guest, "in_p").await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_is_hidden_later_sends_no_more_updates() {
    for transport in CLIENT_TRANSPORTS {
        let is_open = Arc::new(AtomicBool::new(true));
        let visible = {
            let is_open = is_open.clone();
            // The values of the request and of the server are those of the subscription.
            move |cx: &Context| cx.state::<Admins>().is_some() && is_open.load(Ordering::Relaxed)
        };
        let server = Server::new("s", "1")
            .state(Admins("admin"))
            .resource(Resource::text("a:1", "1", "text").visible_to(visible))
            .resource(Resource::text("a:2", "2", "text"))
            .resource_subscriptions();
        let client = transport.connect(&server).await;
        let filter = ChangeFilter::new().resource("a:1").resource("a:2");
        let mut updates = client.subscribe(filter).await.unwrap();
        let change = |uri: &str| Some(Change::Resource(uri.to_owned()));

        server.changed().resource_updated("a:1");
        let before = in_time(updates.next()).await.unwrap();
        is_open.store(false, Ordering::Relaxed);
        server.changed().resource_updated("a:1");
        server.changed().resource_updated("a:2");
        let hidden = in_time(updates.next()).await.unwrap();
        // More changes than a subscription queues.
        for _ in 0..1000 {
            server.changed().resource_updated("a:1");
        }
        server.changed().resource_updated("a:2");
        let lagged = in_time(updates.next()).await.unwrap();
        is_open.store(true, Ordering::Relaxed);
        server.changed().resource_updated("a:1");
        let again = in_time(updates.next()).await.unwrap();

        assert_eq!(before, change("a:1"), "{transport:?}");
        assert_eq!(hidden, change("a:2"), "{transport:?}");
        assert_eq!(lagged, change("a:2"), "{transport:?}");
        assert_eq!(again, change("a:1"), "{transport:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_invalid_cursor_is_refused_before_resources_are_supplied() {
    let calls = Arc::new(AtomicUsize::new(0));
    let server = Server::new("s", "1").resource_list({
        let calls = calls.clone();
        move |_| {
            calls.fetch_add(1, Ordering::Relaxed);
            async { Vec::new() }
        }
    });
    let client = ClientTransport::InProcess.connect(&server).await;
    let mut params = PaginatedRequestParams::default();
    params.cursor = Some(types::Cursor("invalid".to_owned()));

    let refused = client.request::<ListResourcesRequest>(&params).await;

    assert_eq!(
        peer_error(refused.unwrap_err()).code,
        ErrorCode::INVALID_PARAMS
    );
    assert_eq!(calls.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn contents_that_only_some_callers_see_have_a_private_cache_scope() {
    let cached = |uri: &str| {
        let resource = Resource::text(uri, "r", "text");
        resource.cache(Duration::from_secs(60), CacheScope::PUBLIC)
    };
    let server = Server::new("s", "1")
        .resource(cached("docs://public"))
        .resource(cached("docs://hidden").visible_to(|_| true));
    let client = ClientTransport::InProcess.connect(&server).await;

    let public = read(&client, "docs://public").await.unwrap();
    let hidden = read(&client, "docs://hidden").await.unwrap();

    assert_eq!(public.cache_scope, Some(CacheScope::PUBLIC));
    assert_eq!(hidden.cache_scope, Some(CacheScope::PRIVATE));
    assert_eq!(hidden.ttl_ms, Some(60_000));
}
