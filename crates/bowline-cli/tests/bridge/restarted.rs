//! A call that was parked when `bowline bridge` was killed, continued at the next process.

use std::path::PathBuf;

use bowline::client::{Connection, Host};
use bowline::exchange::{Answer, CallOptions, Channel as _, Request};
use bowline::types::ElicitResult;
use bowline::{Client, Error, ErrorCode, Json, RpcError};
use serde_json::{Value, json};

use crate::support::{MODERN, Program, in_time, kill};

/// A legacy server that asks about each call.
const ASKING: &str = r#"
while read -r line; do
  id=${line#*\"id\":}
  id=${id%%[,\}]*}
  case $line in
    *'"method":"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}}\n' "$id" ;;
    *'"method":"tools/call"'*) printf '{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"Name?","requestedSchema":{"type":"object","properties":{}}}}\n' ;;
    *'"method":"notifications/'*|*'"result"'*) ;;
    *) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}\n' "$id" ;;
  esac
done
"#;

#[tokio::test]
async fn with_a_key_a_call_of_a_killed_bridge_is_known_to_be_lost() {
    in_time(async {
        let key = KeyFile::new("known");

        let error = retry_after_kill(&["--state-key", &key.argument()]).await;

        assert_eq!(error.code, ErrorCode::INTERNAL_ERROR, "{error}");
        let data: Value = error.data.unwrap().decode().unwrap();
        assert_eq!(data, json!({"reason": "callLost", "mayHaveRun": true}));
    })
    .await;
}

#[tokio::test]
async fn without_a_key_the_client_is_told_that_the_call_may_have_run() {
    in_time(async {
        let error = retry_after_kill(&[]).await;

        assert_eq!(error.code, ErrorCode::INVALID_PARAMS, "{error}");
        assert!(error.message.contains("may have run"), "{error}");
        let data: Value = error.data.unwrap().decode().unwrap();
        assert_eq!(data, json!({"reason": "unknownState", "mayHaveRun": true}));
    })
    .await;
}

#[tokio::test]
async fn the_file_of_the_key_is_made_for_its_owner_and_not_replaced() {
    use std::os::unix::fs::PermissionsExt as _;

    in_time(async {
        let key = KeyFile::new("made");
        let options = ["--state-key", &key.argument()];
        drop(start(&options).await);
        let first = std::fs::read_to_string(&key.0).unwrap();

        drop(start(&options).await);

        assert_eq!(std::fs::read_to_string(&key.0).unwrap(), first);
        let mode = std::fs::metadata(&key.0).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(&key.0, "short").unwrap();
        let mut refused = Program::start(&[&["bridge"], &options[..], &["--", "sh"]].concat());
        let why = refused.stderr_line("bowline: ").await;
        assert!(why.contains("--state-key"), "{why}");
        assert!(!why.contains("short"), "{why}");
    })
    .await;
}

/// Parks a call, kills the bridge, and continues the call at a bridge with the same options.
async fn retry_after_kill(options: &[&str]) -> RpcError {
    let (mut bridge, client) = start(options).await;
    let call = json!({"name": "ask", "arguments": {}});
    let parked = send(&client, call.clone()).await.unwrap();
    let Answer::InputRequired(parked) = parked else {
        panic!("expected a question, got {parked:?}");
    };
    let parked: Value = parked.decode().unwrap();
    let questions = parked["inputRequests"].as_object().unwrap();
    let answer = json!({"action": "accept", "content": {}});
    let answers: serde_json::Map<_, _> = questions
        .keys()
        .map(|key| (key.clone(), answer.clone()))
        .collect();

    kill(&bridge.id()).await;
    bridge.exit().await;
    let (_restarted, client) = start(options).await;
    let mut retry = call;
    retry["requestState"] = parked["requestState"].clone();
    retry["inputResponses"] = answers.into();
    match send(&client, retry).await.unwrap_err() {
        Error::Rpc(error) => error,
        other => panic!("expected an error of the bridge, got {other}"),
    }
}

async fn start(options: &[&str]) -> (Program, Connection) {
    let front = ["bridge", "--http", "127.0.0.1:0"];
    let arguments = [&front[..], options, &["--", "sh", "-c", ASKING]].concat();
    let mut bridge = Program::start(&arguments);
    let url = bridge.stderr_line("bowline: listening on ").await;
    let host = Host::new().elicitation(async |_| ElicitResult::accept(json!({})));
    let client = Client::connect(&url).protocol_version(MODERN).host(host);
    (bridge, client.connection().await.unwrap())
}

async fn send(client: &Connection, params: Value) -> bowline::Result<Answer> {
    let request = Request::new("tools/call", Json::from(params), client.caller());
    client.open(request, CallOptions::default()).answer().await
}

/// A file that does not exist yet, and is removed at the end.
struct KeyFile(PathBuf);

impl KeyFile {
    fn new(test: &str) -> Self {
        let name = format!("state-key-{test}-{}", std::process::id());
        Self(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    fn argument(&self) -> String {
        format!("@{}", self.0.display())
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
