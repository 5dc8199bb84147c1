//! What differs between callers: entries that only some of them see, and lists that callbacks supply.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline::server::Completer;
use bowline::types::{
    self, CacheScope, CompleteArgument, CompleteRequestParams, ListResourcesRequest,
    PaginatedRequestParams, PromptReference, ResourceTemplateReference,
};
use bowline::{
    Client, Context, Error, ErrorCode, Prompt, Resource, ResourceTemplate, RpcError, Server,
    testing,
};
use serde_json::json;

use crate::support::{
    CLIENT_TRANSPORTS, ClientTransport, complete, peer_error, prompt, read, read_text, serve,
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
