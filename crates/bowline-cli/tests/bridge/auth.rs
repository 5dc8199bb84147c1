//! A bridge whose configuration file requires access tokens of its clients, with those of an authorization server.

use bowline::http::client::Authorizer as _;
use bowline::{Client, Error};
use bowline_auth::client::{Loopback, OAuth};
use http::header::AUTHORIZATION;
use serde_json::json;

use crate::sign_in::{Folder, guarded_server, sign_in};
use crate::support::{LEGACY, MODERN, Program, in_time};

#[tokio::test]
async fn the_front_accepts_the_tokens_of_its_issuer_and_passes_them_on_if_told_to() {
    let folder = Folder::new("auth");
    in_time(async {
        let server = guarded_server().await;
        // The bridge is the same resource as the server, so that it may pass tokens on.
        let auth =
            json!({"issuers": [server.issuer], "resource": server.url, "scopes": ["notes:read"]});
        let upstream = json!({"url": server.url, "bridge": {"passThrough": true}});
        let config = json!({"mcpServers": {"notes": upstream}, "bridge": {"auth": auth}});
        let file = folder.write("bridge.json", &config.to_string());
        let mut bridge = Program::start(&["bridge", "--config", &file, "--http", "127.0.0.1:0"]);
        let front = bridge.stderr_line("bowline: listening on ").await;
        let token = token_for(&server.url).await;

        for version in [MODERN, LEGACY] {
            let client = |token: &str| {
                let connect = Client::connect(&front).protocol_version(version);
                connect.header("Authorization", token)
            };
            let ada = client(&token).await.unwrap();
            let who = ada.call_tool("whoami", ()).await.unwrap().text();
            let (claims, signature) = token.rsplit_once('.').unwrap();
            let signature: String = signature.chars().rev().collect();
            let forged = format!("{claims}.{signature}");

            assert!(who.ends_with("ada"), "{version}: {who}");
            let without = Client::connect(&front).protocol_version(version);
            for refused in [without, client(&forged), client("Bearer x")] {
                let refused = match refused.await {
                    Ok(client) => client.call_tool("whoami", ()).await.unwrap_err(),
                    Err(error) => error,
                };
                let is_refused = matches!(refused, Error::Unauthorized { .. });
                assert!(is_refused, "{version}: {refused:?}");
            }
        }
    })
    .await;
}

/// Signs in, and returns the `Authorization` header of requests to a server.
async fn token_for(url: &str) -> String {
    let oauth = OAuth::new(url).user_agent(Loopback::new(|url| {
        let url = url.to_owned();
        tokio::spawn(async move { sign_in(&url).await });
        Ok(())
    }));
    let (mut head, ()) = http::Request::post(url).body(()).unwrap().into_parts();
    oauth.authorize().await.unwrap();
    oauth.sign(&mut head).await.unwrap();
    let header = &head.headers[AUTHORIZATION];
    header.to_str().unwrap().to_owned()
}
