//! What a server offers besides tools, over a wire in both eras and in process.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what helpers of a test do is part of the test"
)]

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::time::Duration;

use bowline::server::{Completer, Contents, List, LocalBus, not_found};
use bowline::types::{
    CacheScope, CompleteArgument, CompleteRequest, CompleteRequestParams, Completion,
    GetPromptRequest, GetPromptRequestParams, GetPromptResult, Icon, ListPromptsRequest,
    ListResourceTemplatesRequest, ListResourcesRequest, LoggingLevel, PaginatedRequestParams,
    PromptMessage, PromptReference, ReadResourceRequest, ReadResourceRequestParams,
    ReadResourceResult, ResourceContents, ResourceTemplateReference, Role, SubscriptionFilter,
    TextContent,
};
use bowline::wire::{Received, Wire};
use bowline::{
    CallToolResult, Client, Error, ErrorCode, Prompt, Resource, ResourceTemplate, RpcError, Server,
    Tool, wire,
};
use bowline_core::Message;
use serde_json::{Value, json};

/// How a client reaches a server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Wire(&'static str),
    InProcess,
}

const WAYS: [Way; 4] = [
    Way::Wire("2026-07-28"),
    Way::Wire("2025-11-25"),
    Way::Wire("2024-11-05"),
    Way::InProcess,
];

impl Way {
    async fn connect(self, server: &Server) -> Client {
        match self {
            Self::InProcess => Client::to(server).await.unwrap(),
            Self::Wire(version) => {
                let wire = serving(server);
                Client::over(wire).speaking(version).await.unwrap()
            }
        }
    }

    /// The code that this way has for a resource that does not exist.
    fn missing_resource(self) -> ErrorCode {
        match self {
            Self::Wire("2026-07-28") => ErrorCode::INVALID_PARAMS,
            Self::Wire(_) | Self::InProcess => ErrorCode::RESOURCE_NOT_FOUND,
        }
    }
}

/// A wire that the server serves at its other end.
fn serving(server: &Server) -> wire::Memory {
    let (near, far) = wire::memory();
    tokio::spawn(server.clone().serve(far));
    near
}

fn library() -> Server {
    let logo = Resource::raw("docs://logo", "logo", async |_, _| {
        Ok(Contents::blob([1, 2, 3]).mime_type("image/png"))
    });
    let folder = Resource::raw("docs://folder", "folder", async |_, _| {
        Ok(vec![
            Contents::text("one").uri("docs://folder/1"),
            Contents::text("two").uri("docs://folder/2"),
        ])
    });
    let gone = Resource::raw("docs://gone", "gone", async |uri: String, _| {
        Err::<&str, _>(not_found(&uri))
    });
    let page = ResourceTemplate::raw("docs://{book}/pages/{page}", "page", async |asked, _| {
        let page: u32 = asked.variables.parse("page")?;
        let book = asked.variables.text("book").unwrap_or_default();
        Ok(format!("page {page} of {book}"))
    });
    let any = ResourceTemplate::raw("docs://{+rest}", "any", async |asked, _| {
        Ok(asked.variables.text("rest").unwrap_or_default().to_owned())
    });
    Server::new("library", "1.0.0")
        .resource(Resource::text("docs://readme", "readme", "Read me.").mime_type("text/plain"))
        .resource(logo)
        .resource(folder)
        .resource(gone)
        .resource_template(page.unwrap().description("One page."))
        .resource_template(any.unwrap())
}

async fn read(client: &Client, uri: &str) -> Result<ReadResourceResult, Error> {
    let params = ReadResourceRequestParams::new(uri);
    client.request::<ReadResourceRequest>(&params).await
}

async fn read_text(client: &Client, uri: &str) -> String {
    match read(client, uri).await.unwrap().contents.remove(0) {
        ResourceContents::Text(text) => text.text,
        ResourceContents::Blob(blob) => panic!("{blob:?} is no text"),
    }
}

fn refused(error: Error) -> RpcError {
    match error {
        Error::Peer(error) => error,
        other => panic!("{other:?} is no answer"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_resource_is_listed_and_read() {
    for way in WAYS {
        let client = way.connect(&library()).await;

        let params = PaginatedRequestParams::default();
        let listed = client
            .request::<ListResourcesRequest>(&params)
            .await
            .unwrap();
        let readme = read(&client, "docs://readme").await.unwrap();
        let logo = read(&client, "docs://logo").await.unwrap();
        let folder = read(&client, "docs://folder").await.unwrap();

        let uris: Vec<_> = listed.resources.iter().map(|of| of.uri.as_str()).collect();
        let expected = [
            "docs://folder",
            "docs://gone",
            "docs://logo",
            "docs://readme",
        ];
        assert_eq!(uris, expected, "{way:?}");
        let readme = serde_json::to_value(&readme.contents).unwrap();
        let text = json!({"uri": "docs://readme", "mimeType": "text/plain", "text": "Read me."});
        assert_eq!(readme, json!([text]));
        let logo = serde_json::to_value(&logo.contents).unwrap();
        let blob = json!({"uri": "docs://logo", "mimeType": "image/png", "blob": "AQID"});
        assert_eq!(logo, json!([blob]));
        assert_eq!(folder.contents[1].uri(), "docs://folder/2");
    }
}

#[tokio::test(start_paused = true)]
async fn a_template_is_listed_and_read_with_its_variables() {
    for way in WAYS {
        let client = way.connect(&library()).await;

        let params = PaginatedRequestParams::default();
        let listed = client
            .request::<ListResourceTemplatesRequest>(&params)
            .await
            .unwrap();
        let page = read_text(&client, "docs://a%20book/pages/7").await;
        let other = read_text(&client, "docs://a/b").await;
        let no_number = read(&client, "docs://book/pages/x").await.unwrap_err();

        assert_eq!(
            listed.resource_templates[1].uri_template,
            "docs://{book}/pages/{page}"
        );
        assert_eq!(
            listed.resource_templates[1].description.as_deref(),
            Some("One page.")
        );
        assert_eq!(
            page, "page 7 of a book",
            "the template with more fixed text comes first"
        );
        assert_eq!(other, "a/b");
        assert_eq!(refused(no_number).code, ErrorCode::INVALID_PARAMS);
    }
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_does_not_exist_is_told_by_the_code_of_the_era_and_its_uri() {
    for way in WAYS {
        let client = way.connect(&library()).await;

        for uri in ["docs://gone", "other://x", "docs://a/../b", "docs://%2e%2e"] {
            let error = refused(read(&client, uri).await.unwrap_err());

            assert_eq!(error.code, way.missing_resource(), "{way:?} {uri}");
            let told: Value = error.data.unwrap().decode().unwrap();
            assert_eq!(told, json!({ "uri": uri }));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn contents_are_never_an_empty_array() {
    let nothing = Resource::raw("docs://x", "x", async |_, _| Ok(Vec::<Contents>::new()));
    let client = Way::Wire("2026-07-28")
        .connect(&Server::new("s", "1").resource(nothing))
        .await;

    let error = refused(read(&client, "docs://x").await.unwrap_err());

    assert_eq!(error.code, ErrorCode::INVALID_PARAMS);
}

fn reviewer() -> Server {
    let review = Prompt::raw("review", async |arguments: BTreeMap<String, String>, _| {
        let style = arguments.get("style").map_or("kindly", String::as_str);
        Ok(vec![
            PromptMessage::new(Role::User, TextContent::new(format!("Review {style}."))),
            PromptMessage::new(Role::Assistant, TextContent::new(&arguments["code"])),
        ])
    })
    .description("Reviews code.")
    .required("code", "what to review")
    .optional("style", "how");
    let hello = Prompt::raw("hello", async |_, _| Ok("Say hello."));
    let styles = Completer::for_prompt("review", "style", async |typing, _| {
        let after = typing.arguments.get("code").cloned().unwrap_or_default();
        Ok(typing.among([
            "Kindly".to_owned(),
            "kurtly".to_owned(),
            "briefly".to_owned(),
            after,
        ]))
    });
    let pages = Completer::for_template("docs://{book}/{page}", "page", async |_, _| {
        Ok((0..250).map(|page| page.to_string()).collect::<Vec<_>>())
    });
    let page = ResourceTemplate::raw("docs://{book}/{page}", "page", async |_, _| Ok("text"));
    Server::new("reviewer", "1.0.0")
        .prompt(review)
        .prompt(hello)
        .resource_template(page.unwrap())
        .completion(styles)
        .completion(pages)
}

async fn prompt(client: &Client, name: &str, arguments: Value) -> Result<GetPromptResult, Error> {
    let mut params = GetPromptRequestParams::new(name);
    params.arguments = serde_json::from_value(arguments).unwrap();
    client.request::<GetPromptRequest>(&params).await
}

#[tokio::test(start_paused = true)]
async fn a_prompt_is_listed_and_filled_in() {
    for way in WAYS {
        let client = way.connect(&reviewer()).await;

        let params = PaginatedRequestParams::default();
        let listed = client.request::<ListPromptsRequest>(&params).await.unwrap();
        let review = prompt(&client, "review", json!({"code": "x = 1"}))
            .await
            .unwrap();
        let hello = prompt(&client, "hello", Value::Null).await.unwrap();

        assert_eq!(listed.prompts[0].name, "hello");
        let arguments = listed.prompts[1].arguments.as_ref().unwrap();
        let required: Vec<_> = arguments.iter().map(|argument| argument.required).collect();
        assert_eq!(required, [Some(true), Some(false)]);
        assert_eq!(review.description.as_deref(), Some("Reviews code."));
        let messages = serde_json::to_value(&review.messages).unwrap();
        let expected = json!([
            {"role": "user", "content": {"type": "text", "text": "Review kindly."}},
            {"role": "assistant", "content": {"type": "text", "text": "x = 1"}},
        ]);
        assert_eq!(messages, expected);
        assert_eq!(hello.messages[0].role, Role::User);
    }
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_cannot_be_filled_in_is_refused_for_its_params() {
    for way in WAYS {
        let client = way.connect(&reviewer()).await;

        let unknown = prompt(&client, "nobody", json!({})).await.unwrap_err();
        let missing = prompt(&client, "review", json!({"style": "x"}))
            .await
            .unwrap_err();
        let number = json!({"name": "review", "arguments": {"code": 1}});
        let number = client.raw("prompts/get", number).await.unwrap_err();

        for error in [unknown, missing, number] {
            assert_eq!(refused(error).code, ErrorCode::INVALID_PARAMS, "{way:?}");
        }
    }
}

async fn complete(client: &Client, params: CompleteRequestParams) -> Result<Completion, Error> {
    let result = client.request::<CompleteRequest>(&params).await?;
    Ok(result.completion)
}

#[tokio::test(start_paused = true)]
async fn arguments_are_completed_from_what_was_typed_and_decided() {
    for way in WAYS {
        let client = way.connect(&reviewer()).await;
        let (review, typed) = (
            PromptReference::new("review"),
            CompleteArgument::new("style", "k"),
        );
        let mut of_prompt = CompleteRequestParams::new(review.clone(), typed);
        let decided = json!({"arguments": {"code": "knuth"}});
        of_prompt.context = Some(serde_json::from_value(decided).unwrap());
        let template = ResourceTemplateReference::new("docs://{book}/{page}");
        let of_template =
            CompleteRequestParams::new(template.clone(), CompleteArgument::new("page", ""));
        let of_silent = CompleteRequestParams::new(review, CompleteArgument::new("code", ""));

        let styles = complete(&client, of_prompt).await.unwrap();
        let pages = complete(&client, of_template).await.unwrap();
        let nothing = complete(&client, of_silent).await.unwrap();

        assert_eq!(
            styles,
            Completion::new(vec!["Kindly".into(), "kurtly".into(), "knuth".into()])
        );
        assert_eq!(pages.values.len(), 100);
        assert_eq!((pages.total, pages.has_more), (Some(250), Some(true)));
        assert!(nothing.values.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_exist_cannot_be_completed() {
    for way in WAYS {
        let client = way.connect(&reviewer()).await;
        let (known, argument) = (
            PromptReference::new("review"),
            CompleteArgument::new("style", ""),
        );
        let template = ResourceTemplateReference::new("docs://{book}/{page}");
        let wishes = [
            CompleteRequestParams::new(PromptReference::new("nobody"), argument.clone()),
            CompleteRequestParams::new(ResourceTemplateReference::new("docs://x"), argument),
            CompleteRequestParams::new(known, CompleteArgument::new("colour", "")),
            CompleteRequestParams::new(template, CompleteArgument::new("colour", "")),
        ];

        for wish in wishes {
            let error = refused(complete(&client, wish).await.unwrap_err());

            assert_eq!(error.code, ErrorCode::INVALID_PARAMS, "{way:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_offered_is_neither_advertised_nor_answered() {
    let methods = [
        "tools/list",
        "tools/call",
        "prompts/list",
        "prompts/get",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "completion/complete",
    ];
    for way in WAYS {
        let client = way.connect(&Server::new("empty", "1.0.0")).await;

        for method in methods {
            let error = refused(client.raw(method, json!({})).await.unwrap_err());

            assert_eq!(error.code, ErrorCode::METHOD_NOT_FOUND, "{way:?} {method}");
        }
        let told = client
            .capabilities()
            .map(|told| serde_json::to_value(told).unwrap());
        assert!(told.is_none_or(|told| told == json!({})), "{way:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn capabilities_follow_from_what_is_offered() {
    let server = reviewer().tool(echo("echo")).resource_updates().logging();
    let expected = json!({
        "tools": {"listChanged": true},
        "prompts": {"listChanged": true},
        "resources": {"listChanged": true, "subscribe": true},
        "completions": {},
        "logging": {},
    });

    for version in ["2025-11-25", "2025-03-26"] {
        let client = Way::Wire(version).connect(&server).await;

        let told = serde_json::to_value(client.capabilities().unwrap()).unwrap();
        assert_eq!(told, expected, "{version}");
    }
    let client = Way::Wire("2024-11-05").connect(&server).await;
    let told = client.capabilities().unwrap();
    assert_eq!(told.completions, None, "the first version declares none");
    assert!(told.prompts.is_some());
    let client = Client::over(serving(&server)).await.unwrap();
    let told = serde_json::to_value(client.capabilities().unwrap()).unwrap();
    assert_eq!(told, expected, "as discovered");
}

#[tokio::test(start_paused = true)]
async fn an_identity_is_told_whole() {
    let server = Server::new("s", "1")
        .title("The Server")
        .description("Serves.")
        .website("https://example.com")
        .icons([Icon::new("https://example.com/icon.png")]);

    let client = Way::Wire("2025-11-25").connect(&server).await;

    let told = serde_json::to_value(client.server_implementation().unwrap()).unwrap();
    let expected = json!({
        "name": "s", "version": "1", "title": "The Server", "description": "Serves.",
        "websiteUrl": "https://example.com", "icons": [{"src": "https://example.com/icon.png"}],
    });
    assert_eq!(told, expected);
}

fn echo(name: &str) -> Tool {
    Tool::raw(name, json!({"type": "object"}), async |arguments, _| {
        Ok(CallToolResult::text(arguments.to_string()))
    })
}

#[tokio::test(start_paused = true)]
async fn a_list_is_handed_out_in_pages_of_the_size_that_was_set() {
    for way in WAYS {
        let server = (0..5).fold(Server::new("s", "1"), |server, n| {
            server.tool(echo(&format!("tool{n}")))
        });
        let client = way.connect(&server.page_size(2)).await;

        let mut names = Vec::new();
        let mut sizes = Vec::new();
        let mut page = client.list_tools().await.unwrap();
        loop {
            sizes.push(page.tools.len());
            names.extend(page.tools.into_iter().map(|tool| tool.name));
            let Some(next) = page.next_cursor else { break };
            page = client.list_tools().cursor(next).await.unwrap();
        }
        let bad = client.list_tools().cursor("made up").await.unwrap_err();

        assert_eq!(names, ["tool0", "tool1", "tool2", "tool3", "tool4"]);
        assert_eq!(sizes, [2, 2, 1]);
        assert_eq!(refused(bad).code, ErrorCode::INVALID_PARAMS);
    }
}

#[tokio::test(start_paused = true)]
async fn caching_hints_are_given_as_they_were_set_and_in_the_modern_era_only() {
    let long = Duration::from_secs(60);
    let readme = Resource::text("docs://readme", "readme", "text").cache(long, CacheScope::PUBLIC);
    let server = Server::new("s", "1")
        .tool(echo("a"))
        .tool(echo("b"))
        .prompt(Prompt::raw("p", async |_, _| Ok("text")))
        .resource(readme)
        .resource(Resource::text("docs://other", "other", "text"))
        .page_size(1)
        .cache(long, CacheScope::PUBLIC)
        .cache_list(List::Prompts, Duration::from_millis(5), CacheScope::PRIVATE);
    let modern = Way::Wire("2026-07-28").connect(&server).await;
    let legacy = Way::Wire("2025-11-25").connect(&server).await;

    let first = modern.list_tools().await.unwrap();
    let second = modern
        .list_tools()
        .cursor(first.next_cursor.unwrap())
        .await
        .unwrap();
    let params = PaginatedRequestParams::default();
    let prompts = modern.request::<ListPromptsRequest>(&params).await.unwrap();
    let readme = read(&modern, "docs://readme").await.unwrap();
    let other = read(&modern, "docs://other").await.unwrap();
    let old = legacy.raw("tools/list", json!({})).await.unwrap();

    assert_eq!(
        (first.ttl_ms, first.cache_scope),
        (Some(60_000), Some(CacheScope::PUBLIC))
    );
    assert_eq!(
        (second.ttl_ms, second.cache_scope),
        (Some(60_000), Some(CacheScope::PUBLIC))
    );
    assert_eq!(
        (prompts.ttl_ms, prompts.cache_scope),
        (Some(5), Some(CacheScope::PRIVATE))
    );
    assert_eq!(
        (readme.ttl_ms, readme.cache_scope),
        (Some(60_000), Some(CacheScope::PUBLIC))
    );
    assert_eq!(
        (other.ttl_ms, other.cache_scope),
        (Some(0), Some(CacheScope::PRIVATE))
    );
    assert!(!old.json().as_str().contains("ttlMs"), "{old:?}");
}

fn all_lists() -> SubscriptionFilter {
    let mut filter = SubscriptionFilter::default();
    filter.tools_list_changed = Some(true);
    filter.prompts_list_changed = Some(true);
    filter.resources_list_changed = Some(true);
    filter
}

#[tokio::test(start_paused = true)]
async fn what_is_added_and_removed_at_run_time_is_served_and_announced() {
    use bowline::client::Change;

    for way in WAYS {
        let server = Server::new("s", "1")
            .tool(echo("first"))
            .advertise(List::Prompts)
            .advertise(List::Resources);
        let client = way.connect(&server).await;
        let mut changes = client.subscribe(all_lists()).await.unwrap();
        if let Way::Wire(_) = way {
            // A legacy client is told from the moment the server has heard that it is ready.
            client.list_tools().await.unwrap();
        }

        let (told, ()) = tokio::join!(
            async {
                let mut told = Vec::new();
                while told.len() < 4 {
                    told.extend(changes.next().await.unwrap());
                }
                told
            },
            async {
                tokio::task::yield_now().await;
                server.tools().add(echo("second"));
                assert!(server.tools().remove("first"));
                assert!(!server.tools().remove("first"));
                server
                    .prompts()
                    .add(Prompt::raw("p", async |_, _| Ok("text")));
                server
                    .resources()
                    .add(Resource::text("docs://r", "r", "text"));
            },
        );
        let names: Vec<_> = client.list_tools().await.unwrap().tools;
        let called = client.call_tool("second", json!({})).await.unwrap();
        let gone = client.call_tool("first", json!({})).await.unwrap_err();

        let expected = [
            Change::Tools,
            Change::Tools,
            Change::Prompts,
            Change::Resources,
        ];
        assert_eq!(told, expected, "{way:?}");
        assert_eq!(
            names.iter().map(|tool| &*tool.name).collect::<Vec<_>>(),
            ["second"]
        );
        assert_eq!(called.text(), "{}");
        assert_eq!(refused(gone).code, ErrorCode::INVALID_PARAMS);
        assert_eq!(read_text(&client, "docs://r").await, "text");
        assert_eq!(
            prompt(&client, "p", json!({}))
                .await
                .unwrap()
                .messages
                .len(),
            1
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_last_entry_was_removed_is_empty_and_still_there() {
    let server = Server::new("s", "1").tool(echo("only"));
    let client = Way::Wire("2026-07-28").connect(&server).await;

    server.tools().remove("only");

    assert!(client.list_tools().await.unwrap().tools.is_empty());
}

#[tokio::test(start_paused = true)]
async fn servers_on_one_bus_announce_for_each_other() {
    use bowline::client::Change;

    let bus = LocalBus::default();
    let one = Server::new("one", "1").tool(echo("echo")).bus(bus.clone());
    let two = Server::new("two", "1").tool(echo("echo")).bus(bus);
    let client = Way::Wire("2026-07-28").connect(&one).await;
    let mut changes = client.subscribe(all_lists()).await.unwrap();

    two.tools().add(echo("new"));

    assert_eq!(changes.next().await.unwrap(), Some(Change::Tools));
    assert_eq!(changes.honoured().prompts_list_changed, None);
}

#[tokio::test(start_paused = true)]
async fn subscriptions_beyond_the_limit_are_refused_until_one_ends() {
    let server = Server::new("s", "1")
        .tool(echo("echo"))
        .most_subscriptions(1);
    let client = Way::Wire("2026-07-28").connect(&server).await;
    let first = client.subscribe(all_lists()).await.unwrap();

    let second = client.subscribe(all_lists()).await.unwrap_err();
    drop(first);
    client.list_tools().await.unwrap();
    let third = client.subscribe(all_lists()).await;

    let refused = refused(second);
    assert_eq!(
        (refused.code, &*refused.message),
        (ErrorCode::INTERNAL_ERROR, "overloaded")
    );
    assert!(third.is_ok(), "{third:?}");
}

#[tokio::test(start_paused = true)]
async fn one_wire_cannot_take_every_subscription() {
    let server = library().resource_updates();
    let modern = Way::Wire("2026-07-28").connect(&server).await;
    let legacy = Way::Wire("2025-11-25").connect(&server).await;
    let mut kept = Vec::new();
    for n in 0..1024 {
        kept.push(modern.subscribe(all_lists()).await.unwrap());
        let uri = json!({"uri": format!("docs://{n}")});
        legacy.raw("resources/subscribe", uri).await.unwrap();
    }

    let one_more = modern.subscribe(all_lists()).await.unwrap_err();
    let another = legacy
        .raw("resources/subscribe", json!({"uri": "docs://x"}))
        .await;
    let again = legacy
        .raw("resources/subscribe", json!({"uri": "docs://7"}))
        .await;

    for error in [one_more, another.unwrap_err()] {
        assert_eq!(refused(error).message, "overloaded");
    }
    assert!(again.is_ok(), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_limit_are_shed_until_one_ends() {
    for way in WAYS {
        let stuck = Tool::raw("stuck", json!({"type": "object"}), async |_, _| {
            std::future::pending().await
        });
        let server = Server::new("s", "1")
            .tool(stuck)
            .tool(echo("echo"))
            .most_handlers(1);
        let client = way.connect(&server).await;
        let mut first = client.call_tool("stuck", json!({})).start();
        // In process a handler runs only while its caller waits for it.
        tokio::select! {
            biased;
            reply = &mut first => panic!("{reply:?}"),
            tools = client.list_tools() => drop(tools.unwrap()),
        }

        let second = client.call_tool("echo", json!({})).await.unwrap_err();
        drop(first);
        client.list_tools().await.unwrap();
        let third = client.call_tool("echo", json!({})).await;

        let refused = refused(second);
        assert_eq!(
            (refused.code, &*refused.message),
            (ErrorCode::INTERNAL_ERROR, "overloaded")
        );
        assert!(third.is_ok(), "{way:?} {third:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_hears_of_its_resources_and_no_others() {
    use bowline::client::Change;

    for way in WAYS {
        let server = library().resource_updates();
        let client = way.connect(&server).await;
        let mut filter = SubscriptionFilter::default();
        filter.resource_subscriptions = Some(vec!["docs://readme".into()]);
        let mut changes = client.subscribe(filter).await.unwrap();

        let (told, ()) = tokio::join!(changes.next(), async {
            tokio::task::yield_now().await;
            server.changed().resources();
            server.changed().resource_updated("docs://logo");
            server.changed().resource_updated("docs://readme");
        });

        let readme = Change::Resource("docs://readme".into());
        assert_eq!(told.unwrap(), Some(readme), "{way:?}");
    }
}

#[derive(Debug)]
struct Unit(&'static str);

#[tokio::test(start_paused = true)]
async fn a_mounted_server_keeps_its_state_and_gets_a_prefix() {
    let forecast = Tool::raw("forecast", json!({"type": "object"}), async |_, cx| {
        let unit = cx.state::<Unit>().map_or("none", |unit| unit.0);
        let limit = cx.state::<u8>().copied().unwrap_or_default();
        Ok(CallToolResult::text(format!("{limit} {unit}")))
    });
    let weather = Server::new("weather", "1")
        .state(Unit("celsius"))
        .tool(forecast.clone())
        .prompt(Prompt::raw("ask", async |_, _| Ok("text")).required("city", "where"))
        .completion(Completer::for_prompt("ask", "city", async |_, _| {
            Ok(vec!["Oslo"])
        }))
        .resource(Resource::text("weather://help", "help", "help"));
    let server = Server::new("outer", "1")
        .state(Unit("kelvin"))
        .state(7_u8)
        .tool(forecast)
        .mount("weather", &weather);
    for way in WAYS {
        let client = way.connect(&server).await;

        let inner = client
            .call_tool("weather_forecast", json!({}))
            .await
            .unwrap();
        let outer = client.call_tool("forecast", json!({})).await.unwrap();
        let city = CompleteRequestParams::new(
            PromptReference::new("weather_ask"),
            CompleteArgument::new("city", ""),
        );
        let cities = complete(&client, city).await.unwrap();

        assert_eq!(inner.text(), "7 celsius");
        assert_eq!(outer.text(), "7 kelvin");
        assert_eq!(
            client.list_tools().await.unwrap().tools[1].name,
            "weather_forecast"
        );
        assert_eq!(cities.values, ["Oslo"]);
        assert_eq!(read_text(&client, "weather://help").await, "help");
        let arguments = json!({"city": "Oslo"});
        assert!(prompt(&client, "weather_ask", arguments).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn handlers_log_only_where_the_server_says_that_it_logs() {
    for (server, expected) in [
        (Server::new("s", "1"), "none"),
        (Server::new("s", "1").logging(), "declared"),
    ] {
        let noisy = Tool::raw("noisy", json!({"type": "object"}), async |_, cx| {
            cx.log(LoggingLevel::Error, json!("boom"));
            Ok(CallToolResult::text(""))
        });
        let mut far = Raw(serving(&server.tool(noisy)));

        let answer = far.ask(1, "initialize", introduction()).await;
        let said = far.ask(2, "tools/call", json!({"name": "noisy"})).await;
        let level = far
            .ask(3, "logging/setLevel", json!({"level": "error"}))
            .await;

        let declared = expected == "declared";
        assert_eq!(answer.contains("logging"), declared, "{answer}");
        assert_eq!(said.contains("notifications/message"), declared, "{said}");
        assert_eq!(level.contains("-32601"), !declared, "{level}");
    }
}

fn introduction() -> Value {
    let client = json!({"name": "client", "version": "1"});
    json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
}

/// A legacy client that shows what it hears.
struct Raw(wire::Memory);

impl Raw {
    /// Asks, and returns everything that came until the answer, answer included.
    async fn ask(&mut self, id: i64, method: &str, params: Value) -> String {
        let text = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let message = Message::decode(&text.to_string().into()).unwrap();
        self.0.send(&message);
        let mut heard = String::new();
        while !heard.contains(&format!("\"id\":{id},")) {
            match poll_fn(|cx| self.0.poll_receive(cx)).await {
                Received::Frame(frame) => heard.push_str(std::str::from_utf8(&frame).unwrap()),
                other => panic!("{other:?} came instead of an answer"),
            }
        }
        heard
    }
}
