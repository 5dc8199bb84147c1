//! Tokens that the bridge obtains for itself.

use std::sync::{Arc, Mutex, OnceLock};

use bowline_auth::server::ResourceServer;
use bowline_bridge::credentials::Credentials;
use bowline_bridge::{Bridge, BridgeConfig};
use serde_json::json;

use crate::world::*;

#[tokio::test]
async fn the_bridge_obtains_a_token_with_its_own_credentials_for_all_clients() {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let (seen, own) = (requests.clone(), Arc::new(OnceLock::<String>::new()));
    let issuer = own.clone();
    let url = start_raw(move |path, body| {
        let issuer = issuer.get().cloned().unwrap_or_default();
        if path.starts_with("/.well-known/oauth-authorization-server") {
            let metadata = json!({"issuer": issuer, "token_endpoint": format!("{issuer}/token"),
                "authorization_endpoint": format!("{issuer}/authorize"), "response_types_supported": ["code"],
                "grant_types_supported": ["client_credentials"], "code_challenge_methods_supported": ["S256"]});
            return (200, metadata);
        }
        seen.lock().unwrap().push(body.to_owned());
        let token = json!({"access_token": "robot.bridge.use.1", "token_type": "Bearer", "expires_in": 300});
        (200, token)
    });
    let issuer = url.await;
    own.set(issuer.clone()).unwrap();
    let heads = Heads::default();
    let bound = upstream_server().http().bind("127.0.0.1:0").await.unwrap();
    let upstream = format!("http://{}/mcp", bound.local_addr());
    let verifier = TableVerifier {
        issuer: issuer.clone(),
        resource: upstream.clone(),
    };
    let guard = ResourceServer::new(&upstream, &issuer, verifier).unwrap();
    let serving = bound.layer(guard.scopes(["use"])).layer(heads.clone());
    tokio::spawn(async move { serving.serve().await });
    let settings = json!({"oauth": {"clientId": "bridge", "clientSecret": "hunter2", "issuer": issuer,
        "clientCredentials": true}});
    let front = serve_guarded(&bridge_to(&upstream, settings)).await;

    for user in ["ada.editor.use.1", "bob.editor.use.1"] {
        let client = connect(&front, "2026-07-28", &Presented::new(user)).await;
        assert_eq!(client.list_tools().await.unwrap().len(), 1);
        client.call_tool("whoami", ()).await.unwrap();
    }

    assert_eq!(requests.lock().unwrap().len(), 1);
    assert!(requests.lock().unwrap()[0].contains("grant_type=client_credentials"));
    let last = heads.all().pop().unwrap().authorization;
    assert_eq!(last.as_deref(), Some("Bearer robot.bridge.use.1"));
    assert!(heads.all().iter().all(|head| !head.text.contains("editor")));
}

#[test]
fn settings_that_cannot_be_used_are_refused_with_their_names() {
    let refused = [
        (json!({"clientCredentials": true}), "`oauth.clientId`"),
        (json!({"clientKey": "k"}), "`oauth.clientId`"),
        (
            json!({"clientId": "c", "clientKey": "k"}),
            "`oauth.clientKey`",
        ),
        (json!({"clientSecret": "s"}), "`oauth.clientId`"),
        (json!({"issuer": "https://i.example"}), "`oauth.clientId`"),
        (
            json!({"clientId": "c", "clientKey": "k", "clientSecret": "s"}),
            "give one of them",
        ),
    ];
    for (settings, name) in refused {
        let file = json!({"mcpServers": {"a": {"url": "http://127.0.0.1:1/mcp", "bridge": {"oauth": settings}}}});
        let config = BridgeConfig::from_json(&file.to_string()).unwrap();

        let refused = Bridge::from_config_with(&config, |server| Credentials::new().target(server));

        let error = refused.err().unwrap().to_string();
        assert!(error.contains(name), "{error}");
    }
}
