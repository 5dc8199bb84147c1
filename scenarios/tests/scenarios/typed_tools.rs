//! Tools created from functions: schemas from types, and validation of input and output.

use bowline::types::{Icon, Meta};
use bowline::{Args, CallToolResult, ErrorCode, Json, Server, Structured, Tool, ToolError};
use scenarios::{Scenario, ScenarioEnv, scenario};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::{any_object, peer_error, tools, value};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(request_meta_reaches_the_handler, "meta:request-to-handler"),
        scenario!(tool_metadata_reaches_the_client, "tools:list:metadata",).since("2025-11-25"),
        scenario!(
            the_return_type_defines_the_output_schema,
            "mcpserver:tool:output-schema:model",
            "tools:call:structured-content:text-mirror",
        )
        .since(OUTPUT),
        scenario!(
            non_object_output_is_wrapped_for_legacy_clients,
            "mcpserver:tool:output-schema:wrapped",
        )
        .since(OUTPUT),
        scenario!(
            a_handler_error_becomes_an_error_result,
            "mcpserver:tool:handler-throws"
        ),
        scenario!(
            invalid_arguments_do_not_reach_the_handler,
            "mcpserver:tool:input-validation",
        ),
        scenario!(
            nested_constrained_and_tagged_arguments_are_validated_and_decoded,
            "mcpserver:tool:schema-variants",
        ),
        scenario!(
            invalid_or_missing_structured_output_is_not_sent,
            "mcpserver:output-schema:server-validate",
            "mcpserver:output-schema:missing-structured",
        )
        .since(OUTPUT),
        scenario!(
            a_failed_tool_needs_no_structured_output,
            "mcpserver:output-schema:skip-on-error",
        )
        .since(OUTPUT),
    ]
}

#[derive(Deserialize, JsonSchema)]
struct Sum {
    /// the first
    a: i64,
    /// the second
    b: i64,
}

async fn add(Args(sum): Args<Sum>) -> i64 {
    sum.a + sum.b
}

async fn request_meta_reaches_the_handler(env: ScenarioEnv) {
    let note = async |meta: Meta| -> String {
        let note = meta.get("example.com/note");
        note.map(ToString::to_string).unwrap_or_default()
    };
    let client = env
        .connect(&Server::new("s", "1").tool(Tool::new("note", note)))
        .await;
    let mut meta = Meta::default();
    meta.insert("example.com/note", Json::from(json!({"deep": [1]})));

    let reply = client.call_tool("note", ()).meta(meta).await.unwrap();

    assert_eq!(reply.text(), r#"{"deep":[1]}"#);
}

async fn tool_metadata_reaches_the_client(env: ScenarioEnv) {
    let mut meta = Meta::default();
    meta.insert("example.com/team", Json::from(json!("blue")));
    let add = Tool::new("add", add)
        .title("Add")
        .description("Adds two numbers.")
        .read_only(true)
        .destructive(false)
        .idempotent(true)
        .open_world(false)
        .icon(Icon::new("https://example.com/icon.png"))
        .meta(meta);
    let client = env.connect(&Server::new("s", "1").tool(add)).await;

    let tool = serde_json::to_value(tools(&client).await.remove(0)).unwrap();

    let properties = json!({
        "a": {"type": "integer", "description": "the first"},
        "b": {"type": "integer", "description": "the second"},
    });
    let mut output = json!({"type": "integer"});
    if !env.is_modern() {
        output =
            json!({"type": "object", "properties": {"result": output}, "required": ["result"]});
    }
    let hints = json!({
        "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false,
    });
    assert_eq!(tool["title"], "Add");
    assert_eq!(tool["description"], "Adds two numbers.");
    assert_eq!(tool["annotations"], hints);
    assert_eq!(
        tool["icons"],
        json!([{"src": "https://example.com/icon.png"}])
    );
    assert_eq!(tool["_meta"], json!({"example.com/team": "blue"}));
    assert_eq!(tool["inputSchema"]["properties"], properties);
    assert_eq!(tool["outputSchema"], output);
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Weather {
    degrees: f64,
    sky: String,
}

async fn the_return_type_defines_the_output_schema(env: ScenarioEnv) {
    let weather = async || {
        Structured(Weather {
            degrees: 17.5,
            sky: "clear".into(),
        })
    };
    let client = env
        .connect(&Server::new("s", "1").tool(Tool::new("weather", weather)))
        .await;

    let schema = value(tools(&client).await[0].output_schema.as_ref().unwrap());
    let reply = client.call_tool("weather", ()).await.unwrap();

    let structured: Value = reply.structured().unwrap();
    let mirrored: Value = serde_json::from_str(&reply.text()).unwrap();
    assert_eq!(schema["properties"]["degrees"]["type"], "number");
    assert_eq!(schema["required"], json!(["degrees", "sky"]));
    assert_eq!(structured, json!({"degrees": 17.5, "sky": "clear"}));
    assert_eq!(mirrored, structured);
}

async fn non_object_output_is_wrapped_for_legacy_clients(env: ScenarioEnv) {
    let list = Tool::new("list", async || Structured(vec![1, 2, 3]));
    let client = env.connect(&Server::new("s", "1").tool(list)).await;

    let schema = value(tools(&client).await[0].output_schema.as_ref().unwrap());
    let reply = client.call_tool("list", ()).await.unwrap();

    let result = value(reply.json());
    if env.is_modern() {
        assert_eq!(schema["type"], "array");
        assert_eq!(result["structuredContent"], json!([1, 2, 3]));
    } else {
        assert_eq!(schema["properties"]["result"]["type"], "array");
        assert_eq!(result["structuredContent"], json!({"result": [1, 2, 3]}));
    }
    assert_eq!(reply.structured::<Vec<i64>>().unwrap(), [1, 2, 3]);
}

async fn a_handler_error_becomes_an_error_result(env: ScenarioEnv) {
    let parse = async || -> Result<i64, ToolError> { Ok("seven".parse::<i64>()?) };
    let client = env
        .connect(&Server::new("s", "1").tool(Tool::new("parse", parse)))
        .await;

    let reply = client.call_tool("parse", ()).await.unwrap();

    assert!(reply.is_error());
    assert_eq!(reply.text(), "invalid digit found in string");
}

async fn invalid_arguments_do_not_reach_the_handler(env: ScenarioEnv) {
    let strict = async |_: Args<Sum>| -> i64 { panic!("the handler ran") };
    let client = env
        .connect(&Server::new("s", "1").tool(Tool::new("strict", strict)))
        .await;

    for arguments in [json!({}), json!({"a": 1}), json!({"a": "one", "b": 2})] {
        let reply = client.call_tool("strict", arguments.clone()).await.unwrap();
        assert!(reply.is_error(), "{arguments}");
        assert!(!reply.text().is_empty());
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Shape {
    Circle { radius: f64 },
    Square { side: f64 },
}

#[derive(Deserialize, JsonSchema)]
struct Drawing {
    shape: Shape,
    #[schemars(range(min = 1, max = 10))]
    copies: u32,
    colours: Option<Vec<String>>,
}

async fn draw(Args(drawing): Args<Drawing>) -> String {
    let area = match drawing.shape {
        Shape::Circle { radius } => 3.0 * radius * radius,
        Shape::Square { side } => side * side,
    };
    let colours = drawing.colours.unwrap_or_default().join(" and ");
    format!("{} of {area} in {colours}", drawing.copies)
}

async fn nested_constrained_and_tagged_arguments_are_validated_and_decoded(env: ScenarioEnv) {
    let client = env
        .connect(&Server::new("s", "1").tool(Tool::new("draw", draw)))
        .await;
    let circle = json!({"kind": "circle", "radius": 1});

    let fits = json!({"shape": circle, "copies": 2, "colours": ["red", "blue"]});
    let drawn = client.call_tool("draw", fits).await.unwrap();
    let square = json!({"shape": {"kind": "square", "side": 2}, "copies": 1});
    let plain = client.call_tool("draw", square).await.unwrap();

    assert_eq!(drawn.text(), "2 of 3 in red and blue");
    assert_eq!(plain.text(), "1 of 4 in ");
    for misfit in [
        json!({"shape": circle, "copies": 11}),
        json!({"shape": {"kind": "circle"}, "copies": 1}),
        json!({"shape": {"kind": "heart"}, "copies": 1}),
        json!({"shape": circle, "copies": 1, "colours": [7]}),
    ] {
        let refused = client.call_tool("draw", misfit.clone()).await.unwrap();
        assert!(refused.is_error(), "{misfit}");
    }
}

/// A tool whose output schema requires a total, and which returns this result.
fn tool_with_output(name: &str, result: CallToolResult) -> Tool {
    let schema = json!({"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]});
    let tool = Tool::raw(name, any_object(), move |_, _| {
        let result = result.clone();
        async { Ok(result) }
    });
    tool.output_schema(schema)
}

async fn invalid_or_missing_structured_output_is_not_sent(env: ScenarioEnv) {
    let with = |structured: Value| {
        let mut result = CallToolResult::text("1");
        result.structured_content = Some(Json::from(structured));
        result
    };
    let server = Server::new("s", "1")
        .tool(tool_with_output("fits", with(json!({"total": 1}))))
        .tool(tool_with_output("misfits", with(json!({"total": "one"}))))
        .tool(tool_with_output("misses", CallToolResult::text("1")));
    let client = env.connect(&server).await;

    let fits = client.call_tool("fits", ()).await.unwrap();
    let misfits = peer_error(client.call_tool("misfits", ()).await);
    let misses = peer_error(client.call_tool("misses", ()).await);

    assert_eq!(fits.structured::<Value>().unwrap(), json!({"total": 1}));
    assert_eq!(misfits.code, ErrorCode::INTERNAL_ERROR);
    assert_eq!(misses.code, ErrorCode::INTERNAL_ERROR);
}

async fn a_failed_tool_needs_no_structured_output(env: ScenarioEnv) {
    let fails = tool_with_output("fails", CallToolResult::error("out of numbers"));
    let client = env.connect(&Server::new("s", "1").tool(fails)).await;

    let reply = client.call_tool("fails", ()).await.unwrap();

    assert!(reply.is_error());
    assert_eq!(reply.text(), "out of numbers");
}

/// The first version with structured output.
const OUTPUT: &str = "2025-06-18";
