//! Connections to a server, sample servers, and requests.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::time::Duration;

use bowline::server::{Completer, Contents, not_found};
use bowline::types::{
    CompleteRequest, CompleteRequestParams, Completion, GetPromptRequest, GetPromptRequestParams,
    GetPromptResult, PromptMessage, ReadResourceRequest, ReadResourceRequestParams,
    ReadResourceResult, ResourceContents, Role, SubscriptionFilter, TextContent,
};
use bowline::wire::{Received, Wire};
use bowline::{
    CallToolResult, Client, Error, Prompt, Resource, ResourceTemplate, RpcError, Server, Tool, wire,
};
use bowline_core::Message;
use serde_json::{Value, json};

/// How a client connects to a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ClientTransport {
    Wire(&'static str),
    InProcess,
}

pub(crate) const CLIENT_TRANSPORTS: [ClientTransport; 4] = [
    ClientTransport::Wire("2026-07-28"),
    ClientTransport::Wire("2025-11-25"),
    ClientTransport::Wire("2024-11-05"),
    ClientTransport::InProcess,
];

impl ClientTransport {
    pub(crate) async fn connect(self, server: &Server) -> Client {
        match self {
            Self::InProcess => Client::in_process(server).await.unwrap(),
            Self::Wire(version) => {
                let wire = serve(server);
                Client::from_wire(wire)
                    .protocol_version(version)
                    .await
                    .unwrap()
            }
        }
    }
}

/// Serves an in-memory wire, and returns the client's end.
pub(crate) fn serve(server: &Server) -> wire::Memory {
    let (near, far) = wire::memory();
    tokio::spawn(server.clone().serve(far));
    near
}

pub(crate) fn library() -> Server {
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
        Err::<&str, _>(not_found(&uri).into())
    });
    let page = ResourceTemplate::raw("docs://{book}/pages/{page}", "page", async |request, _| {
        let page: u32 = request.variables.parse("page")?;
        let book = request.variables.text("book").unwrap_or_default();
        Ok(format!("page {page} of {book}"))
    });
    let any = ResourceTemplate::raw("docs://{+rest}", "any", async |request, _| {
        Ok(request
            .variables
            .text("rest")
            .unwrap_or_default()
            .to_owned())
    });
    Server::new("library", "1.0.0")
        .resource(Resource::text("docs://readme", "readme", "Read me.").mime_type("text/plain"))
        .resource(logo)
        .resource(folder)
        .resource(gone)
        .resource_template(page.unwrap().description("One page."))
        .resource_template(any.unwrap())
}

pub(crate) async fn read(client: &Client, uri: &str) -> Result<ReadResourceResult, Error> {
    let params = ReadResourceRequestParams::new(uri);
    client.request::<ReadResourceRequest>(&params).await
}

pub(crate) async fn read_text(client: &Client, uri: &str) -> String {
    match read(client, uri).await.unwrap().contents.remove(0) {
        ResourceContents::Text(text) => text.text,
        ResourceContents::Blob(blob) => panic!("expected text, got {blob:?}"),
    }
}

pub(crate) fn peer_error(error: Error) -> RpcError {
    match error {
        Error::Rpc(error) => error,
        other => panic!("expected an error response, got {other:?}"),
    }
}

pub(crate) fn reviewer() -> Server {
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
    let styles = Completer::for_prompt("review", "style", async |input, _| {
        let after = input.arguments.get("code").cloned().unwrap_or_default();
        Ok(input.matching([
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
        .completer(styles)
        .completer(pages)
}

pub(crate) async fn prompt(
    client: &Client,
    name: &str,
    arguments: Value,
) -> Result<GetPromptResult, Error> {
    let mut params = GetPromptRequestParams::new(name);
    params.arguments = serde_json::from_value(arguments).unwrap();
    client.request::<GetPromptRequest>(&params).await
}

pub(crate) async fn complete(
    client: &Client,
    params: CompleteRequestParams,
) -> Result<Completion, Error> {
    let result = client.request::<CompleteRequest>(&params).await?;
    Ok(result.completion)
}

pub(crate) fn echo(name: &str) -> Tool {
    Tool::raw(name, json!({"type": "object"}), async |arguments, _| {
        Ok(CallToolResult::text(arguments.to_string()))
    })
}

/// Fails the test if `waiting` is still pending after 10 s.
pub(crate) async fn in_time<T>(waiting: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(10);
    tokio::time::timeout(limit, waiting).await.unwrap()
}

pub(crate) fn all_lists() -> SubscriptionFilter {
    let mut filter = SubscriptionFilter::default();
    filter.tools_list_changed = Some(true);
    filter.prompts_list_changed = Some(true);
    filter.resources_list_changed = Some(true);
    filter
}

pub(crate) fn initialize_params() -> Value {
    let client = json!({"name": "client", "version": "1"});
    json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
}

/// A legacy client that returns the frames it receives.
pub(crate) struct RawClient(pub(crate) wire::Memory);

impl RawClient {
    /// Sends a request, and returns all frames up to and including its response.
    pub(crate) async fn request(&mut self, id: i64, method: &str, params: Value) -> String {
        let text = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let message = Message::decode(&text.to_string().into()).unwrap();
        self.0.send(&message);
        let mut received = String::new();
        while !received.contains(&format!("\"id\":{id},")) {
            match poll_fn(|cx| self.0.poll_receive(cx)).await {
                Received::Frame(frame) => received.push_str(std::str::from_utf8(&frame).unwrap()),
                other => panic!("expected a response, got {other:?}"),
            }
        }
        received
    }
}
