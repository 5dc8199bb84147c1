//! One tool over HTTP.

use bowline::prelude::*;

/// Adds two numbers.
#[tool]
async fn add(a: i64, b: i64) -> String {
    (a + b).to_string()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> bowline::Result<()> {
    #[cfg(feature = "client")]
    if let Some(url) = std::env::args().nth(1) {
        let client = Client::connect(&url).await?;
        let arguments = serde_json::json!({"a": 1, "b": 2});
        let reply = client.call_tool("add", arguments).await?;
        println!("{}", reply.text());
        return client.close().await;
    }
    let server = Server::new("calculator", "1.0.0").tool(add);
    server.serve_http("127.0.0.1:8000").await
}
