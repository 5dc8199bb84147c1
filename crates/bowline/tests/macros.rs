//! Tools, prompts and resources defined by attributes.

#![allow(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    reason = "a panic fails the test, and handlers own their parameters"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bowline::client::Host;
use bowline::prelude::*;
use bowline::server::{CompletionInput, IntoDefinition, RequestedUri};
use bowline::{Caller, ErrorCode, RpcError, types};
use serde_json::{Value, json};

/// Adds two numbers.
///
/// Both of them.
#[tool]
async fn add(
    /// the first
    a: i64,
    /** the second */
    b: i64,
) -> i64 {
    a + b
}

/// Looks something up.
#[tool(
    name = "look-up",
    title = "Look up",
    read_only,
    destructive = false,
    idempotent,
    open_world = false,
    icon = "https://example.com/a.png",
    cancel = "signal",
    max_concurrency = 2
)]
async fn look_up(
    cx: Context,
    #[tool(name = "type")] kind: String,
    State(shelf): State<Arc<Vec<&'static str>>>,
    #[tool(default = 1)] mut nth: usize,
    #[header("Region")] region: Option<String>,
    #[tool(default)]
    #[schemars(length(max = 3))]
    tags: Vec<String>,
    caller: Arc<Caller>,
) -> Result<String, ToolError> {
    nth -= 1;
    let found = shelf
        .get(nth)
        .ok_or_else(|| ToolError::new("there is no such book"))?;
    let version = caller.dialect.version;
    let id = cx.request_id();
    Ok(format!("{kind} {found} {region:?} {tags:?} {version} {id}"))
}

#[tool]
fn slowly(word: String) -> String {
    word
}

#[tool(requires(elicitation, roots))]
async fn ask(_whom: Option<String>) {}

struct Counter {
    count: AtomicI64,
}

#[tools]
impl Counter {
    /// Counts on.
    #[tool]
    async fn count(
        &self,
        /// how far
        #[tool(default = 1)]
        by: i64,
    ) -> i64 {
        self.count.fetch_add(by, Ordering::Relaxed) + by
    }

    #[tool(name = "peek")]
    fn look(&self) -> i64 {
        self.value()
    }

    #[tool]
    async fn zero() -> i64 {
        0
    }

    fn value(&self) -> i64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// Reviews code.
#[prompt(title = "Review")]
async fn review(
    /// what to review
    code: String,
    /// how many lines of it
    lines: Option<u32>,
    State(style): State<&'static str>,
) -> String {
    format!("Review {lines:?} lines of {code} in {style} style.")
}

#[prompt(name = "hello")]
fn greet() -> &'static str {
    "Hello!"
}

#[prompt]
async fn translate(language: String, country: Option<String>) -> String {
    format!("Translate it into {language} as spoken in {country:?}.")
}

/// Read me first.
#[resource(uri = "docs://readme", mime_type = "text/plain")]
async fn readme(requested: RequestedUri) -> String {
    requested.uri
}

#[resource(uri = "weather://{city}/{day}", title = "Forecast")]
async fn forecast(city: String, day: u8) -> Result<String, RpcError> {
    match day {
        0..7 => Ok(format!("{city} on day {day}")),
        _ => Err(RpcError::new(ErrorCode::INVALID_PARAMS, "that is too far")),
    }
}

async fn definition<M>(tool: impl IntoDefinition<Tool, M>) -> Value {
    serde_json::to_value(Tool::of(tool).definition()).unwrap()
}

#[tool(deny_unknown)]
async fn strict(a: i64) -> i64 {
    a
}

#[test]
fn deny_unknown_closes_the_schema() {
    let schema: Value = Tool::of(strict).definition().input_schema.decode().unwrap();

    assert_eq!(schema["additionalProperties"], false);
}

#[tokio::test]
async fn parameters_are_arguments_and_doc_comments_describe_them() {
    let client = Client::in_process(&Server::new("calculator", "1.0.0").tool(add))
        .await
        .unwrap();

    let reply = client
        .call_tool("add", json!({"a": 1, "b": 2}))
        .await
        .unwrap();

    assert_eq!(reply.text(), "3");
    assert_eq!(
        definition(add).await,
        json!({
            "name": "add",
            "description": "Adds two numbers.\n\nBoth of them.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "a": {"type": "integer", "description": "the first"},
                    "b": {"type": "integer", "description": "the second"},
                },
                "required": ["a", "b"],
            },
            "outputSchema": {"type": "integer"},
        })
    );
}

#[tokio::test]
async fn extractors_are_not_arguments_and_options_are_setters() {
    assert_eq!(
        definition(look_up).await,
        json!({
            "name": "look-up",
            "title": "Look up",
            "description": "Looks something up.",
            "annotations": {
                "readOnlyHint": true,
                "destructiveHint": false,
                "idempotentHint": true,
                "openWorldHint": false,
            },
            "icons": [{"src": "https://example.com/a.png"}],
            "inputSchema": {
                "type": "object",
                "properties": {
                    "type": {"type": "string"},
                    "nth": {"type": "integer", "minimum": 0, "default": 1},
                    "region": {"type": "string", "x-mcp-header": "Region"},
                    "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3, "default": []},
                },
                "required": ["type"],
            },
        })
    );
}

#[tokio::test]
async fn omitted_arguments_have_their_defaults() {
    let server = Server::new("library", "1.0.0")
        .state(Arc::new(vec!["one", "two"]))
        .tool(look_up);
    let client = Client::in_process(&server).await.unwrap();

    let first = client
        .call_tool("look-up", json!({"type": "book"}))
        .id("a")
        .await
        .unwrap();
    let given = json!({"type": "book", "nth": 2, "region": "eu", "tags": ["x"]});
    let second = client.call_tool("look-up", given).id("b").await.unwrap();
    let third = client
        .call_tool("look-up", json!({"type": "book", "nth": 3}))
        .await
        .unwrap();

    assert_eq!(first.text(), r#"book one None [] 2026-07-28 "a""#);
    assert_eq!(second.text(), r#"book two Some("eu") ["x"] 2026-07-28 "b""#);
    assert!(third.is_error());
}

#[tokio::test]
async fn a_function_that_is_not_async_is_a_tool_too() {
    let client = Client::in_process(&Server::new("parrot", "1.0.0").tool(slowly))
        .await
        .unwrap();

    let reply = client
        .call_tool("slowly", json!({"word": "hi"}))
        .await
        .unwrap();

    assert_eq!(reply.text(), "hi");
}

#[tokio::test]
async fn a_call_without_the_scopes_of_a_tool_is_refused() {
    #[tool(scopes("files:read", "files:write"))]
    async fn wipe() {}
    let server = Server::new("shelf", "1.0.0").tool(wipe);
    let client = Client::in_process(&server).await.unwrap();

    let refused = client.call_tool("wipe", ()).await;

    let Err(bowline::Error::Rpc(error)) = refused else {
        panic!("expected an error response, got {refused:?}");
    };
    let data: Value = error.data.unwrap().decode().unwrap();
    let scopes = json!(["files:read", "files:write"]);
    assert_eq!(
        data,
        json!({"requiredScopes": scopes, "missingScopes": scopes})
    );
}

#[tokio::test]
async fn the_capabilities_a_tool_requires_are_checked_before_it_runs() {
    let client = Client::in_process(&Server::new("asking", "1.0.0").tool(ask))
        .await
        .unwrap();

    let error = client.call_tool("ask", ()).await.unwrap_err();

    let bowline::Error::Rpc(error) = error else {
        unreachable!("{error}")
    };
    assert_eq!(error.code, ErrorCode::MISSING_CLIENT_CAPABILITY);
    let data: types::MissingRequiredClientCapability = error.data.unwrap().decode().unwrap();
    assert!(data.required_capabilities.roots.is_some());
    assert!(definition(ask).await["inputSchema"]["properties"]["whom"].is_object());
}

#[tokio::test]
async fn a_tool_elicits_in_every_era_with_the_same_code() {
    #[derive(bowline::serde::Deserialize, bowline::schemars::JsonSchema)]
    #[serde(crate = "bowline::serde")]
    #[schemars(crate = "bowline::schemars")]
    struct Guests {
        count: u32,
    }

    #[tool(requires(elicitation))]
    async fn book(cx: Context, table: u32) -> Result<String, ToolError> {
        let guests: Guests = cx.elicit("guests", "How many?").await?;
        Ok(format!("table {table} for {}", guests.count))
    }

    let server = Server::new("restaurant", "1.0.0").tool(book);
    for version in ["2026-07-28", "2025-11-25"] {
        let host =
            Host::new().elicitation(async |_| types::ElicitResult::accept(json!({"count": 2})));
        let client = Client::in_process(&server)
            .protocol_version(version)
            .host(host)
            .await
            .unwrap();

        let reply = client.call_tool("book", json!({"table": 7})).await.unwrap();

        assert_eq!(reply.text(), "table 7 for 2", "{version}");
    }
}

#[tokio::test]
async fn the_tools_of_a_toolbox_share_its_fields() {
    let server = Server::new("counter", "1.0.0").toolbox(Counter { count: 40.into() });
    let client = Client::in_process(&server).await.unwrap();

    let first = client.call_tool("count", ()).await.unwrap();
    let second = client.call_tool("count", json!({"by": 1})).await.unwrap();
    let seen = client.call_tool("peek", ()).await.unwrap();
    let zero = client.call_tool("zero", ()).await.unwrap();

    let texts = [first, second, seen, zero].map(|reply| reply.text());
    assert_eq!(texts, ["41", "42", "42", "0"]);
    assert_eq!(server.tools().names(), ["count", "peek", "zero"]);
}

fn bookshop() -> Server {
    Server::new("bookshop", "1.0.0")
        .state("terse")
        .prompt(review)
        .prompt(greet)
        .resource(readme)
        .resource_template(forecast)
}

#[tokio::test]
async fn prompt_arguments_are_parsed_from_strings() {
    let client = Client::in_process(&bookshop()).await.unwrap();
    let params = json!({"name": "review", "arguments": {"code": "x", "lines": "3"}});

    let listed = client.request_raw("prompts/list", ()).await.unwrap();
    let reviewed = client.request_raw("prompts/get", params).await.unwrap();
    let greeted = client
        .request_raw("prompts/get", json!({"name": "hello"}))
        .await
        .unwrap();

    assert_eq!(
        listed.decode::<Value>().unwrap()["prompts"],
        json!([
            {"name": "hello"},
            {
                "name": "review",
                "title": "Review",
                "description": "Reviews code.",
                "arguments": [
                    {"name": "code", "description": "what to review", "required": true},
                    {"name": "lines", "description": "how many lines of it", "required": false},
                ],
            },
        ])
    );
    assert_eq!(
        first_text(&reviewed),
        "Review Some(3) lines of x in terse style."
    );
    assert_eq!(first_text(&greeted), "Hello!");
}

#[tokio::test]
async fn a_prompt_argument_that_does_not_parse_is_refused() {
    let client = Client::in_process(&bookshop()).await.unwrap();
    let params = json!({"name": "review", "arguments": {"code": "x", "lines": "many"}});

    let error = client.request_raw("prompts/get", params).await.unwrap_err();

    assert!(matches!(error, bowline::Error::Rpc(error) if error.code == ErrorCode::INVALID_PARAMS));
}

#[tokio::test]
async fn a_resource_attribute_serves_the_result_of_its_function() {
    let client = Client::in_process(&bookshop()).await.unwrap();

    let read = client
        .request_raw("resources/read", json!({"uri": "docs://readme"}))
        .await
        .unwrap();

    assert_eq!(
        read.decode::<Value>().unwrap()["contents"],
        json!([{"uri": "docs://readme", "mimeType": "text/plain", "text": "docs://readme"}])
    );
}

#[tokio::test]
async fn the_variables_of_a_template_become_arguments() {
    let client = Client::in_process(&bookshop()).await.unwrap();
    let read = async |uri: &str| {
        client
            .request_raw("resources/read", json!({"uri": uri}))
            .await
    };

    let tuesday = read("weather://paris/2").await.unwrap();
    let too_far = read("weather://paris/9").await;
    let no_day = read("weather://paris/tuesday").await;

    assert_eq!(
        tuesday.decode::<Value>().unwrap()["contents"][0]["text"],
        "paris on day 2"
    );
    for refused in [too_far, no_day] {
        let error = refused.unwrap_err();
        assert!(
            matches!(error, bowline::Error::Rpc(error) if error.code == ErrorCode::INVALID_PARAMS)
        );
    }
}

#[tokio::test]
async fn an_invalid_template_is_refused_when_the_server_starts() {
    #[resource(uri = "weather://{city")]
    async fn broken() -> String {
        String::new()
    }

    let error = Client::in_process(&Server::new("weather", "1.0.0").resource_template(broken))
        .await
        .unwrap_err();

    assert!(matches!(error, bowline::Error::Misuse { .. }));
}

#[tokio::test]
async fn prompts_and_resources_need_their_state_too() {
    let error = Server::new("bookshop", "1.0.0")
        .prompt(review)
        .check()
        .unwrap_err();

    assert_eq!(
        error.to_string(),
        "prompt `review` requires `State<&str>`; add it with `Server::state`"
    );
}

fn first_text(prompt: &bowline::Reply) -> String {
    let prompt: Value = prompt.decode().unwrap();
    prompt["messages"][0]["content"]["text"]
        .as_str()
        .unwrap()
        .to_owned()
}

type Shelf = State<Arc<Vec<&'static str>>>;

/// The type of the first parameter is known by its pattern only, that of the second by its attribute.
#[tool]
async fn shelved(State(shelf): Shelf, #[tool(extractor)] again: Shelf, nth: usize) -> String {
    assert!(Arc::ptr_eq(&shelf, &again.0));
    shelf[nth].to_owned()
}

#[completion(prompt = "translate", argument = "language")]
async fn languages(
    input: CompletionInput,
    country: Option<String>,
) -> Result<Vec<String>, ToolError> {
    let country = country.ok_or("the country is missing")?;
    Ok(input.matching(["Danish", "Dutch", &country]).values)
}

#[tokio::test]
async fn functions_with_an_attribute_can_be_called() {
    assert_eq!(add(1, 2).await, 3);
    assert_eq!(slowly("word".into()), "word");
    assert_eq!(slowly("word".into()).into_inner(), "word".to_owned());
    assert_eq!(slowly("word".into()).to_uppercase(), "WORD");
    assert!(
        review("x".into(), None, State("terse"))
            .await
            .ends_with("in terse style.")
    );
    assert_eq!(greet(), "Hello!");
    assert_eq!(forecast("Oslo".into(), 1).await.unwrap(), "Oslo on day 1");
}

#[tokio::test]
async fn extractors_are_recognized_by_pattern_and_by_attribute() {
    let shelf = Arc::new(vec!["Emma", "Persuasion"]);
    let client = Client::in_process(&Server::new("library", "1.0.0").state(shelf).tool(shelved))
        .await
        .unwrap();

    let reply = client
        .call_tool("shelved", json!({"nth": 1}))
        .await
        .unwrap();

    assert_eq!(reply.text(), "Persuasion");
    let tools = client.list_tools().await.unwrap();
    let schema: Value = tools[0].input_schema.decode().unwrap();
    assert_eq!(schema["required"], json!(["nth"]));
}

#[tokio::test]
async fn a_completer_takes_what_is_typed_and_the_other_arguments() {
    let server = Server::new("translator", "1.0.0")
        .prompt(translate)
        .completer(languages);
    let client = Client::in_process(&server).await.unwrap();
    let reference = types::PromptReference::new("translate");

    let complete = client.complete(reference.clone(), "language", "d");
    let found = complete.context_argument("country", "Dansk").await.unwrap();
    let failed = client
        .complete(reference, "language", "d")
        .await
        .unwrap_err();

    assert_eq!(found.values, ["Danish", "Dutch", "Dansk"]);
    assert_eq!(failed.to_string(), "the country is missing (-32603)");
}

struct Notes(std::sync::Mutex<std::collections::BTreeMap<String, String>>);

#[tools]
impl Notes {
    #[tool]
    fn save(&self, title: String, text: String) {
        self.0.lock().unwrap().insert(title, text);
    }

    /// Summarizes a note.
    #[prompt]
    async fn summarize(&self, title: String) -> Result<String, ToolError> {
        Ok(format!("Summarize: {}", self.text(&title)?))
    }

    #[resource(uri = "notes://all", mime_type = "text/plain")]
    fn all(&self) -> String {
        let notes = self.0.lock().unwrap();
        notes.keys().cloned().collect::<Vec<_>>().join(" ")
    }

    #[bowline::resource(uri = "notes://by-title/{title}")]
    async fn note(&self, title: String) -> Result<String, ToolError> {
        Ok(self.text(&title)?)
    }

    #[completion(template = "notes://by-title/{title}", argument = "title")]
    async fn titles(&self, input: CompletionInput) -> types::Completion {
        input.matching(self.0.lock().unwrap().keys().cloned())
    }

    fn text(&self, title: &str) -> Result<String, &'static str> {
        self.0
            .lock()
            .unwrap()
            .get(title)
            .cloned()
            .ok_or("no such note")
    }
}

#[tokio::test]
async fn a_toolbox_has_prompts_resources_and_completers_that_share_its_fields() {
    let server = Server::new("notes", "1.0.0").toolbox(Notes(Default::default()));
    let client = Client::in_process(&server).await.unwrap();

    let note = json!({"title": "todo", "text": "buy rope"});
    client.call_tool("save", note).await.unwrap();
    let prompt = client
        .get_prompt("summarize", json!({"title": "todo"}))
        .await
        .unwrap();
    let all = client.read_resource("notes://all").await.unwrap();
    let one = client.read_resource("notes://by-title/todo").await.unwrap();
    let template = types::ResourceTemplateReference::new("notes://by-title/{title}");
    let titles = client.complete(template, "title", "T").await.unwrap();

    assert_eq!(prompt.description.as_deref(), Some("Summarizes a note."));
    let text = types::ContentBlock::text("Summarize: buy rope");
    assert_eq!(prompt.messages[0].content, text);
    assert_eq!(
        serde_json::to_value(&all.contents).unwrap()[0]["text"],
        "todo"
    );
    assert_eq!(
        serde_json::to_value(&one.contents).unwrap()[0]["text"],
        "buy rope"
    );
    assert_eq!(titles.values, ["todo"]);
    assert_eq!(client.list_tools().await.unwrap().len(), 1);
}

#[test]
fn a_completer_without_its_state_is_an_error_of_the_server() {
    #[completion(prompt = "translate", argument = "language")]
    async fn known(input: CompletionInput, State(known): State<Vec<String>>) -> types::Completion {
        input.matching(known)
    }

    let server = Server::new("translator", "1.0.0")
        .prompt(translate)
        .completer(known);

    let error = server.check().unwrap_err().to_string();
    assert!(
        error.contains("completer of argument `language` of prompt `translate`"),
        "{error}"
    );
}

/// A parameter may have the name of the function.
#[tool]
async fn name(name: String) -> String {
    name
}

#[tokio::test]
async fn a_parameter_may_have_the_name_of_its_function() {
    let client = Client::in_process(&Server::new("names", "1.0.0").tool(name))
        .await
        .unwrap();

    let reply = client
        .call_tool("name", json!({"name": "Ada"}))
        .await
        .unwrap();

    assert_eq!(reply.text(), name("Ada".into()).await);
}

#[tokio::test]
async fn a_function_with_sixteen_parameters_is_a_tool() {
    #[tool]
    #[expect(
        clippy::too_many_arguments,
        clippy::many_single_char_names,
        reason = "the test"
    )]
    async fn sum(
        a: u32,
        b: u32,
        c: u32,
        d: u32,
        e: u32,
        f: u32,
        g: u32,
        h: u32,
        i: u32,
        j: u32,
        k: u32,
        l: u32,
        m: u32,
        n: u32,
        o: u32,
        p: u32,
    ) -> u32 {
        a + b + c + d + e + f + g + h + i + j + k + l + m + n + o + p
    }
    let server = Server::new("adder", "1.0.0").tool(sum);
    let client = Client::in_process(&server).await.unwrap();

    let arguments: serde_json::Map<String, Value> = ('a'..='p')
        .map(|name| (name.to_string(), json!(1)))
        .collect();
    let reply = client.call_tool("sum", arguments).await.unwrap();

    assert_eq!(reply.text(), "16");
}
