//! Servers over HTTP.

use bowline::{Client, Error};
use bowline_auth::client::{EmbeddedBrowser, OAuth};
use bowline_example_authorization_server::SimulatedUser;
use serde_json::json;

use crate::support::{end, in_time, serve};

#[tokio::test]
async fn axum_bearer_admits_known_tokens_only() {
    let (server, line) = serve("axum_bearer", 1).await;
    let url = line.strip_prefix("listening on ").unwrap();
    in_time(async {
        for (token, name) in [("token-of-ada", "ada"), ("token-of-grace", "grace")] {
            let client = Client::connect(url).bearer(token).await.unwrap();
            assert_eq!(client.call_tool("whoami", ()).await.unwrap().text(), name);
        }
        let unknown = Client::connect(url).bearer("token-of-eve").await;
        for refused in [Client::connect(url).await, unknown] {
            assert!(
                matches!(refused, Err(Error::Unauthorized { .. })),
                "{refused:?}"
            );
        }
    })
    .await;
    end(server).await;
}

#[tokio::test]
async fn axum_serves_and_ends_on_ctrl_c() {
    let (server, line) = serve("axum", 1).await;
    let url = line.strip_prefix("listening on ").unwrap();
    in_time(async {
        let client = Client::connect(url).await.unwrap();
        let reply = client.call_tool("add", json!({"a": 1, "b": 2})).await;
        assert_eq!(reply.unwrap().text(), "3");
    })
    .await;
    end(server).await;
}

#[tokio::test]
async fn oauth_asks_the_user_for_consent() {
    let (_server, line) = serve("oauth", 2).await;
    let (url, _) = line.split_once(" accepts tokens issued by ").unwrap();
    in_time(async {
        let user = |url: String| async move { SimulatedUser::new("ada").allow(&url).await };
        let browser = EmbeddedBrowser::new("http://127.0.0.1:7/callback", user);
        let oauth = OAuth::new(url).name("test").user_agent(browser);
        let client = Client::connect(url).authorizer(oauth).await.unwrap();

        let before = client.call_tool("whoami", ()).await.unwrap().text();
        let forgotten = client.call_tool("forget", ()).await.unwrap().text();
        let after = client.call_tool("whoami", ()).await.unwrap().text();

        assert!(before.ends_with("ada (notes:read)"), "{before}");
        assert_eq!(forgotten, "forgotten");
        assert!(after.ends_with("ada (notes:read, notes:write)"), "{after}");
        let refused = Client::connect(url).await;
        assert!(
            matches!(refused, Err(Error::Unauthorized { .. })),
            "{refused:?}"
        );
    })
    .await;
}
