//! An extension that a legacy version has in another way: drawings, of which 2025-11-25 has its own form here.

use bowline::exchange::{BoxFuture, Context, Dialect, Outcome, Request};
use bowline::server::{ExtensionMethod, ServerExtension, ToolCall};
use bowline::testing::{ScriptedPeer, scripted_client};
use bowline::types::{CapabilitySettings, ServerCapabilities};
use bowline::{ErrorCode, RpcError, Server, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

struct Drawing;

const ID: &str = "com.example/drawing";

impl ServerExtension for Drawing {
    fn id(&self) -> &str {
        ID
    }

    fn is_available_in(&self, dialect: &Dialect) -> bool {
        dialect.is_modern() || dialect.version == "2025-11-25"
    }

    fn is_declared_by_legacy(&self, request: &Request) -> bool {
        request.method == "drawings/old"
            || request.params.member("draw").is_ok_and(|it| it.is_some())
    }

    fn undeclared_error(&self, dialect: &Dialect) -> Option<RpcError> {
        let why = format!("expected `draw` at {}", dialect.version);
        Some(RpcError::new(ErrorCode::METHOD_NOT_FOUND, why))
    }

    fn adjust_capabilities(&self, cx: &Context, capabilities: &mut ServerCapabilities) {
        if !cx.caller().dialect.is_modern() {
            let experimental = capabilities.experimental.get_or_insert_default();
            experimental.insert("drawings".to_owned(), CapabilitySettings::default());
            capabilities.extensions = None;
        }
    }

    fn methods(&self) -> Vec<ExtensionMethod> {
        vec![
            ExtensionMethod::new("drawings/old").legacy_only(),
            ExtensionMethod::new("drawings/new").modern_only(),
        ]
    }

    fn respond<'a>(&'a self, request: Request, _: Context) -> BoxFuture<'a, Outcome> {
        Box::pin(async move { Ok(json!({"method": request.method}).into()) })
    }

    fn call_tool<'a>(&'a self, call: ToolCall, _: Context) -> BoxFuture<'a, Outcome> {
        Box::pin(async move { Ok(json!({"drawing": call.name()}).into()) })
    }
}

#[derive(Deserialize, JsonSchema)]
struct Size {
    #[allow(dead_code, reason = "only its schema is used")]
    pages: u32,
}

fn drawing_server() -> Server {
    let draws = async |_: bowline::Args<Size>| "a text";
    let server = Server::new("s", "1").extension(Drawing);
    let server = server.tool(Tool::new("draws", draws).requires_extension(ID));
    server.check().unwrap();
    server
}

async fn connect(version: &str) -> ScriptedPeer {
    let mut client = scripted_client(&drawing_server());
    let dialect = Dialect::of(version).unwrap();
    client.perform_handshake(dialect, json!({})).await;
    client
}

async fn call(client: &mut ScriptedPeer, params: Value) -> Value {
    client.call("1", "tools/call", params).await
}

#[tokio::test(start_paused = true)]
async fn a_legacy_request_declares_an_extension_in_its_own_way() {
    let mut client = connect("2025-11-25").await;
    let valid = json!({"pages": 1});

    let drawn = json!({"name": "draws", "arguments": valid, "draw": true});
    let drawn = call(&mut client, drawn).await;
    assert_eq!(drawn["result"], json!({"drawing": "draws"}));
    let undeclared = json!({"name": "draws", "arguments": valid});
    let undeclared = call(&mut client, undeclared).await;
    assert_eq!(undeclared["error"]["code"], -32601);
    assert_eq!(
        undeclared["error"]["message"],
        "expected `draw` at 2025-11-25"
    );
    // Not a tool result: the client expects a drawing.
    let invalid = json!({"name": "draws", "arguments": {}, "draw": true});
    let invalid = call(&mut client, invalid).await;
    assert_eq!(invalid["error"]["code"], -32602);
    let old = client.call("2", "drawings/old", json!({})).await;
    assert_eq!(old["result"]["method"], "drawings/old");
    let new = client.call("3", "drawings/new", json!({})).await;
    assert_eq!(new["error"]["code"], -32601);
}

#[tokio::test(start_paused = true)]
async fn the_capabilities_of_a_legacy_client_do_not_declare_an_extension() {
    let mut client = scripted_client(&drawing_server());
    let dialect = Dialect::of("2025-11-25").unwrap();
    let capabilities = json!({"extensions": {ID: {}}});
    client.perform_handshake(dialect, capabilities).await;
    let arguments = json!({"pages": 1});

    let undeclared = json!({"name": "draws", "arguments": arguments});
    let undeclared = call(&mut client, undeclared).await;
    let declared = json!({"name": "draws", "arguments": arguments, "draw": true});
    let declared = call(&mut client, declared).await;

    assert_eq!(undeclared["error"]["code"], -32601, "{undeclared}");
    assert_eq!(declared["result"], json!({"drawing": "draws"}));
}

#[tokio::test(start_paused = true)]
async fn a_version_without_the_extension_does_not_have_its_methods_and_errors() {
    let mut client = connect("2025-06-18").await;

    let drawn = json!({"name": "draws", "arguments": {"pages": 1}, "draw": true});
    let drawn = call(&mut client, drawn).await;
    assert_eq!(drawn["error"]["code"], -32602, "{drawn}");
    let old = client.call("2", "drawings/old", json!({})).await;
    assert_eq!(old["error"]["code"], -32601);
}

#[tokio::test(start_paused = true)]
async fn capabilities_are_adjusted_by_version() {
    for (version, expected) in [
        ("2025-11-25", json!({"drawings": {}})),
        ("2025-06-18", Value::Null),
    ] {
        let mut client = scripted_client(&drawing_server());
        let params = json!({
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": {"name": "scripted", "version": "1.0.0"},
        });

        let opened = client.call("1", "initialize", params).await;

        let capabilities = &opened["result"]["capabilities"];
        assert_eq!(capabilities["experimental"], expected, "{version}");
        assert_eq!(capabilities["extensions"], Value::Null, "{version}");
    }
}
