//! Who a client is to an authorization server, how it proves that, and to whom nothing of it is shown.

use std::sync::Arc;

use bowline_auth::client::{MemoryStore, RegisteredClient};
use scenarios::{Scenario, World, scenario};
use serde_json::{Value, json};

use crate::client_authorization::find;
use crate::guarded::{CALLBACK, Guarded, Issuer, WELL_KNOWN, call, connect, oauth, why};

pub(crate) fn scenarios() -> Vec<Scenario> {
    let all = vec![
        scenario!(
            a_client_without_an_id_registers_and_others_do_not,
            "client-auth:dcr",
            "client-auth:pre-registration",
            "client-auth:cimd",
        ),
        scenario!(
            a_registration_that_fails_is_an_error,
            "client-auth:dcr:registration-error-surfaces",
        ),
        scenario!(
            a_registration_may_come_back_changed_if_it_can_be_used,
            "client-auth:dcr:substituted-metadata",
        ),
        scenario!(
            a_client_proves_itself_as_it_registered,
            "client-auth:token-endpoint-auth-method",
        ),
        scenario!(
            credentials_are_shown_to_their_own_issuer_only,
            "client-auth:as-binding",
        ),
        scenario!(
            a_server_is_shown_tokens_of_its_own_issuer_only,
            "client-auth:token-provenance",
        ),
        scenario!(
            a_client_that_is_not_known_any_more_forgets_what_it_was_given,
            "client-auth:invalid-client-clears-all",
        ),
    ];
    all.into_iter().map(Scenario::over_http).collect()
}

async fn a_client_without_an_id_registers_and_others_do_not(world: World) {
    let issuer = Issuer::start().await;
    let server = Guarded::by(&[&issuer]).await;
    let document = "https://app.example/client.json";
    let supported = "client_id_metadata_document_supported";
    issuer.script().metadata[supported] = json!(true);
    let known = RegisteredClient::new(&issuer.url, "known");

    let unknown = oauth(&server).name("An editor");
    call(&world, &server, unknown).await.unwrap();
    let registered = issuer.received();
    let known = oauth(&server).client(known);
    call(&world, &server, known).await.unwrap();
    let by_hand = issuer.received();
    let published = oauth(&server).client_metadata(document);
    call(&world, &server, published).await.unwrap();
    let by_document = issuer.received();

    let about = find(&registered, "POST /register").json();
    assert_eq!(about["redirect_uris"], json!([CALLBACK]));
    assert_eq!(about["client_name"], "An editor");
    let id = &find(&registered, "GET /authorize").query()["client_id"];
    assert!(id.ends_with("-client-1"), "the one that it was given: {id}");
    for (received, id) in [(by_hand, "known"), (by_document, document)] {
        let requests: Vec<_> = received.iter().map(|it| it.what()).collect();
        let discovery = format!("GET {WELL_KNOWN}");
        assert_eq!(requests, [&discovery, "GET /authorize", "POST /token"]);
        assert_eq!(find(&received, "GET /authorize").query()["client_id"], id);
        assert_eq!(find(&received, "POST /token").form()["client_id"], id);
    }
}

async fn a_registration_that_fails_is_an_error(world: World) {
    let issuer = Issuer::start().await;
    let server = Guarded::by(&[&issuer]).await;
    let error = json!({"error": "invalid_redirect_uri", "error_description": "no ports, please"});
    issuer.script().says_next("/register", 400, error);

    let reason = why(call(&world, &server, oauth(&server)).await);

    assert!(reason.contains("invalid_redirect_uri"), "{reason}");
    assert!(reason.contains("no ports, please"), "{reason}");
    assert_eq!(issuer.requests().last().unwrap(), "POST /register");
}

async fn a_registration_may_come_back_changed_if_it_can_be_used(world: World) {
    let issuer = Issuer::start().await;
    let server = Guarded::by(&[&issuer]).await;
    let method = "token_endpoint_auth_method";

    issuer.script().registers = json!({
        "client_name": "another name",
        "grant_types": ["authorization_code"],
        "scope": "less",
        "client_secret": "hush",
        "client_secret_expires_at": 0,
        method: "client_secret_post",
        "something_of_its_own": {"x": 1},
    });
    call(&world, &server, oauth(&server)).await.unwrap();
    let redeemed = find(&issuer.received(), "POST /token").form();
    let mut refused = Vec::new();
    for unusable in [
        json!({method: "tls_client_auth"}),
        json!({method: "client_secret_basic"}),
        json!({method: "private_key_jwt"}),
        json!({"client_id": Value::Null}),
    ] {
        issuer.script().registers = unusable;
        refused.push(why(call(&world, &server, oauth(&server)).await));
    }

    assert_eq!(redeemed["client_secret"], "hush");
    let why_not = [
        "tls_client_auth",
        "client_secret_basic",
        "private_key_jwt",
        "registration",
    ];
    for (reason, word) in refused.iter().zip(why_not) {
        assert!(reason.contains(word), "{reason}");
    }
    let requests = issuer.requests();
    assert!(
        !requests.iter().any(|it| it == "GET /authorize"),
        "nobody is asked in vain"
    );
}

async fn a_client_proves_itself_as_it_registered(world: World) {
    let method = "token_endpoint_auth_method";
    for (registers, basic, secret) in [
        (json!({method: "none"}), false, None),
        (
            json!({method: "client_secret_basic", "client_secret": "hush"}),
            true,
            None,
        ),
        (
            json!({method: "client_secret_post", "client_secret": "hush"}),
            false,
            Some("hush"),
        ),
    ] {
        let issuer = Issuer::start().await;
        let server = Guarded::by(&[&issuer]).await;
        issuer.script().registers = registers.clone();
        let client = connect(&world, &server, oauth(&server)).await.unwrap();
        client.call_tool("whoami", ()).await.unwrap();
        issuer.end_tokens();

        client.call_tool("whoami", ()).await.unwrap();

        let received = issuer.received();
        let sent = received.iter().filter(|it| it.what() == "POST /token");
        let sent: Vec<_> = sent.collect();
        assert_eq!(sent.len(), 2, "for the code and for the renewal");
        for sent in sent {
            let shown = sent
                .authorization()
                .is_some_and(|it| it.starts_with("Basic "));
            assert_eq!(shown, basic, "{registers}");
            let form = sent.form();
            assert_eq!(form.get("client_secret").map(String::as_str), secret);
            assert_eq!(form.contains_key("client_id"), !basic, "{registers}");
        }
        client.close().await.unwrap();
    }
}

async fn credentials_are_shown_to_their_own_issuer_only(world: World) {
    let (home, other) = (Issuer::start().await, Issuer::start().await);
    let server = Guarded::by(&[&other, &home]).await;

    // What an application was given beforehand.
    let own = || RegisteredClient::new(&home.url, "known").secret("hush");
    let abroad = oauth(&server).client(own());
    let by_person = why(call(&world, &server, abroad).await);
    let abroad = oauth(&server).client(own()).client_credentials();
    let by_itself = why(call(&world, &server, abroad).await);
    let visits = (home.requests(), other.requests());
    // What a client was given on the way, by a server that moves.
    let client = connect(&world, &server, oauth(&server)).await.unwrap();
    client.call_tool("whoami", ()).await.unwrap();
    let registered = find(&other.received(), "GET /authorize").query();
    server.publishes(&home.url, None);
    other.end_tokens();
    client.call_tool("whoami", ()).await.unwrap();

    for reason in [by_person, by_itself] {
        assert!(reason.contains("the client is registered at"), "{reason}");
    }
    assert_eq!(visits, (vec![], vec![]), "nobody is even visited");
    let received = home.received();
    let given = find(&received, "GET /authorize").query();
    assert_eq!(find(&received, "POST /register").status, 201);
    assert_ne!(given["client_id"], registered["client_id"]);
    let old = &registered["client_id"];
    assert!(!received.iter().any(|it| it.contains(old)), "{received:?}");
    client.close().await.unwrap();
}

async fn a_server_is_shown_tokens_of_its_own_issuer_only(world: World) {
    let (one, two) = (Issuer::start().await, Issuer::start().await);
    let (first, second) = (Guarded::by(&[&one, &two]).await, Guarded::by(&[&two]).await);
    let store = Arc::new(MemoryStore::new());
    let oauth = |server: &Guarded| oauth(server).store(store.clone());

    let client = connect(&world, &first, oauth(&first)).await.unwrap();
    client.call_tool("whoami", ()).await.unwrap();
    call(&world, &second, oauth(&second)).await.unwrap();
    let (of_one, of_two) = (one.script().last_token(), two.script().last_token());
    let (shown_first, shown_second) = (first.received(), second.received());
    // The first server moves to the other issuer.
    first.publishes(&two.url, None);
    one.end_tokens();
    one.received();
    client.call_tool("whoami", ()).await.unwrap();
    first.received();
    client.call_tool("whoami", ()).await.unwrap();

    assert!(shown_first.iter().any(|it| it.contains(&of_one)));
    assert!(!shown_first.iter().any(|it| it.contains(&of_two)));
    assert!(shown_second.iter().any(|it| it.contains(&of_two)));
    assert!(!shown_second.iter().any(|it| it.contains(&of_one)));
    let moved = first.received();
    let calls: Vec<_> = moved.iter().filter(|it| it.path == "/mcp").collect();
    let bearer = format!("Bearer {}", two.script().last_token());
    assert!(!calls.is_empty());
    assert!(calls.iter().all(|it| it.authorization() == Some(&bearer)));
    let renewals = |issuer: &Issuer| {
        let received = issuer.received();
        received.iter().any(|it| it.contains("refresh_token="))
    };
    assert!(
        !renewals(&one) && !renewals(&two),
        "what one gave out is renewed nowhere else"
    );
    client.close().await.unwrap();
}

async fn a_client_that_is_not_known_any_more_forgets_what_it_was_given(world: World) {
    let issuer = Issuer::start().await;
    let server = Guarded::by(&[&issuer]).await;
    let client = connect(&world, &server, oauth(&server)).await.unwrap();
    client.call_tool("whoami", ()).await.unwrap();
    let old = find(&issuer.received(), "GET /authorize").query();
    let old = &old["client_id"];
    issuer.end_tokens();
    let error = json!({"error": "invalid_client"});
    issuer.script().says_next("/token", 401, error);

    client.call_tool("whoami", ()).await.unwrap();

    let received = issuer.received();
    let requests: Vec<_> = received.iter().map(|it| it.what()).collect();
    let discovery = format!("GET {WELL_KNOWN}");
    let renewal = [&discovery, "POST /token"];
    let anew = [
        &discovery,
        "POST /register",
        "GET /authorize",
        "POST /token",
    ];
    assert_eq!(requests, [&renewal[..], &anew].concat());
    assert!(received[1].contains(old) && received[1].contains("-refresh-1"));
    for later in &received[2..] {
        assert!(
            !later.contains(old) && !later.contains("-refresh-1"),
            "{later:?}"
        );
    }
    client.close().await.unwrap();
}
