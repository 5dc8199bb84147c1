//! The SDK's own client: calls succeed through expiry, rotation and revocation, with the fewest possible prompts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline::exchange::Dialect;
use bowline::{Client, Error};
use bowline_auth::client::{EmbeddedBrowser, OAuth};
use bowline_auth::server::ResourceServer;
use bowline_example_authorization_server::SimulatedUser;

use crate::test_servers::{TestServers, Verification};

/// A user who counts the prompts.
#[derive(Clone, Default)]
struct CountingUser {
    prompts: Arc<AtomicUsize>,
}

impl CountingUser {
    /// Connects a client that prompts this user.
    async fn connect(&self, servers: &TestServers, version: &str) -> Client {
        let prompts = self.prompts.clone();
        let browser = EmbeddedBrowser::new(CALLBACK, move |url: String| {
            prompts.fetch_add(1, Ordering::Relaxed);
            async move { SimulatedUser::new("ada").allow(&url).await }
        });
        let oauth = OAuth::new(&servers.resource)
            .name("test")
            .user_agent(browser);
        let connect = Client::connect(&servers.resource).protocol_version(version);
        connect.authorizer(oauth).await.unwrap()
    }

    fn prompts(&self) -> usize {
        self.prompts.load(Ordering::Relaxed)
    }
}

fn versions() -> impl Iterator<Item = &'static str> {
    Dialect::ALL.iter().map(|dialect| dialect.version)
}

#[tokio::test]
async fn the_first_call_prompts_and_the_next_reuse_the_token() {
    for version in versions() {
        for verification in [Verification::Jwt, Verification::Introspection] {
            let (servers, user) = (
                TestServers::new(verification).await,
                CountingUser::default(),
            );
            let client = user.connect(&servers, version).await;

            for _ in 0..3 {
                let name = client.call_tool("whoami", ()).await.unwrap().text();
                assert_eq!(name, format!("{} ada", servers.issuer), "{version}");
            }

            assert_eq!(user.prompts(), 1, "{version}");
            client.close().await.unwrap();
        }
    }
}

/// Servers, a user and a client that has an access token.
async fn signed_in(
    verification: Verification,
    version: &'static str,
) -> (TestServers, CountingUser, Client) {
    let (servers, user) = (
        TestServers::new(verification).await,
        CountingUser::default(),
    );
    let client = user.connect(&servers, version).await;
    client.call_tool("whoami", ()).await.unwrap();
    (servers, user, client)
}

#[tokio::test]
async fn an_expired_token_is_refreshed_without_a_prompt() {
    for version in versions() {
        let (servers, user, client) = signed_in(Verification::Jwt, version).await;

        for _ in 0..3 {
            servers.advance(300);
            client.call_tool("whoami", ()).await.unwrap();
        }

        assert_eq!(user.prompts(), 1, "{version}");
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn concurrent_calls_refresh_an_expired_token_once() {
    for version in versions() {
        // Reusing a refresh token revokes the whole family, so a second refresh would be noticed.
        let (servers, user, client) = signed_in(Verification::Introspection, version).await;

        servers.advance(300);
        let calls: Vec<_> = (0..10)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.call_tool("whoami", ()).await.map(drop) })
            })
            .collect();

        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!(user.prompts(), 1, "{version}");
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_key_rotation_causes_no_prompt() {
    for version in versions() {
        let (servers, user, client) = signed_in(Verification::Jwt, version).await;

        servers.authorization.rotate_key();
        client.call_tool("whoami", ()).await.unwrap();
        servers.authorization.retire_old_keys();
        servers.advance(300);
        client.call_tool("whoami", ()).await.unwrap();

        assert_eq!(user.prompts(), 1, "{version}");
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_revoked_token_causes_a_new_prompt() {
    for version in versions() {
        let (servers, user, client) = signed_in(Verification::Introspection, version).await;

        servers.authorization.revoke_everything();
        client.call_tool("whoami", ()).await.unwrap();

        assert_eq!(user.prompts(), 2, "{version}");
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_scope_is_requested_when_the_tool_is_called() {
    for version in versions() {
        let (servers, user) = (
            TestServers::new(Verification::Jwt).await,
            CountingUser::default(),
        );
        let client = user.connect(&servers, version).await;
        let tools = client.list_tools().await.unwrap();
        assert_eq!(user.prompts(), 1, "{version}");

        let written = client.call_tool("write", ()).await.unwrap().text();
        client.call_tool("whoami", ()).await.unwrap();

        assert_eq!(tools.len(), 2);
        assert_eq!(written, "written", "{version}");
        assert_eq!(user.prompts(), 2, "{version}");
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn every_request_with_a_bound_token_has_a_dpop_proof() {
    for version in versions() {
        let bound = |guard: ResourceServer| guard.require_dpop().dpop_nonces([7; 32]);
        let servers = TestServers::with_layer(Verification::Jwt, bound).await;
        let user = CountingUser::default();
        let client = user.connect(&servers, version).await;

        for _ in 0..3 {
            client.call_tool("whoami", ()).await.unwrap();
        }
        let written = client.call_tool("write", ()).await.unwrap().text();

        assert_eq!(written, "written", "{version}");
        assert_eq!(user.prompts(), 2, "{version}");
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_denial_is_not_followed_by_another_prompt() {
    let (servers, user) = (
        TestServers::new(Verification::Jwt).await,
        CountingUser::default(),
    );
    let prompts = user.prompts.clone();
    let browser = EmbeddedBrowser::new(CALLBACK, move |url: String| {
        prompts.fetch_add(1, Ordering::Relaxed);
        async move { SimulatedUser::new("ada").deny(&url).await }
    });
    let oauth = OAuth::new(&servers.resource).user_agent(browser);
    let connect = Client::connect(&servers.resource).protocol_version(Dialect::LATEST.version);
    let client = connect.authorizer(oauth).await.unwrap();

    let refused = client.call_tool("whoami", ()).await;

    assert!(
        matches!(refused, Err(Error::Unauthorized { .. })),
        "{refused:?}"
    );
    assert_eq!(user.prompts(), 1);
}

const CALLBACK: &str = "http://127.0.0.1:7/callback";
