//! How often the user is prompted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::fake_servers::FakeServers;
use crate::{ControlledUser, Decision, connect, oauth, why};

#[tokio::test]
async fn a_server_that_accepts_no_token_causes_a_limited_number_of_prompts() {
    let servers = FakeServers::default();
    let hour = Duration::from_secs(3600);
    let client = connect(&servers, oauth(&servers).max_prompts(2, hour)).await;
    servers.state().accepts_tokens = false;

    let mut reasons = Vec::new();
    for _ in 0..6 {
        let outcome = client.call_tool("x", ()).await;
        if let Some(source) = std::error::Error::source(&outcome.unwrap_err()) {
            reasons.push(source.to_string());
        }
    }

    assert_eq!(servers.count("consent"), 2);
    assert_eq!(
        reasons.last().unwrap(),
        "the user was prompted 2 times within 3600s, which is the limit"
    );
}

#[tokio::test]
async fn denied_scopes_are_not_prompted_for_by_the_next_call() {
    let servers = FakeServers::default();
    let user = ControlledUser::new(&servers);
    let oauth = Arc::new(oauth(&servers).user_agent(user.browser()));
    let client = connect(&servers, oauth.clone()).await;
    user.decide(Decision::Deny);

    for _ in 0..3 {
        let reason = why(client.call_tool("x", ()).await);
        assert_eq!(
            reason,
            "the authorization request failed: the authorization server returned `access_denied`"
        );
    }
    let prompts_by_calls = user.prompts.load(Ordering::SeqCst);
    user.decide(Decision::Allow);
    let still = client.call_tool("x", ()).await;
    oauth.authorize().await.unwrap();
    client.call_tool("x", ()).await.unwrap();

    assert_eq!(prompts_by_calls, 1);
    assert!(still.is_err());
    assert_eq!(user.prompts.load(Ordering::SeqCst), 2);
}
