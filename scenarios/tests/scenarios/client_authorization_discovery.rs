//! Discovery of the resource metadata and the issuer metadata, and their validation.

use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::json;

use crate::client_authorization::find;
use crate::protected_server::{
    ProtectedServer, RESOURCE_METADATA, ScriptedIssuer, WELL_KNOWN, authorization_error, call,
    oauth,
};

pub(crate) fn scenarios() -> Vec<Scenario> {
    let all = vec![
        scenario!(
            the_metadata_url_of_the_challenge_is_tried_before_the_well_known_urls,
            "client-auth:prm-discovery:fallback-order",
        ),
        scenario!(
            without_resource_metadata_the_server_is_its_own_issuer,
            "client-auth:prm-discovery:no-prm-fallback",
        ),
        scenario!(
            metadata_of_another_resource_is_rejected,
            "client-auth:prm-resource-mismatch",
        ),
        scenario!(
            issuer_metadata_urls_are_tried_in_the_order_of_the_specification,
            "client-auth:as-metadata-discovery:priority-order",
        ),
        scenario!(
            metadata_of_another_issuer_is_rejected,
            "client-auth:as-metadata-discovery:issuer-validation",
        ),
    ];
    all.into_iter().map(Scenario::over_http).collect()
}

async fn the_metadata_url_of_the_challenge_is_tried_before_the_well_known_urls(env: ScenarioEnv) {
    let (issuer, server) = ProtectedServer::with_issuer().await;
    let origin = server.url.trim_end_matches("/mcp").to_owned();
    let about =
        |resource: &str| json!({"resource": resource, "authorization_servers": [issuer.url]});
    let publish_at = |path: &str, resource: &str| {
        let mut overrides = server.overrides();
        overrides.documents.clear();
        for known in [RESOURCE_METADATA, ROOT_METADATA] {
            overrides.documents.insert(known.to_owned(), json!(null));
        }
        overrides.documents.insert(path.to_owned(), about(resource));
    };
    let challenge = |challenge: String| server.overrides().challenges.insert(401, challenge);

    publish_at("/elsewhere", &server.url);
    challenge(format!("Bearer resource_metadata=\"{origin}/elsewhere\""));
    call(&env, &server, oauth(&server)).await.unwrap();
    let named = server.metadata_requests();
    publish_at(RESOURCE_METADATA, &server.url);
    challenge("Bearer".into());
    call(&env, &server, oauth(&server)).await.unwrap();
    let by_path = server.metadata_requests();
    publish_at(ROOT_METADATA, &origin);
    call(&env, &server, oauth(&server)).await.unwrap();
    let at_root = server.metadata_requests();

    let get = |path: &str| format!("GET {path}");
    assert_eq!(named, [get("/elsewhere")]);
    assert_eq!(by_path, [get(RESOURCE_METADATA)]);
    assert_eq!(at_root, [get(RESOURCE_METADATA), get(ROOT_METADATA)]);
}

async fn without_resource_metadata_the_server_is_its_own_issuer(env: ScenarioEnv) {
    let server = ProtectedServer::with_own_issuer().await;
    let get = |path: &str| format!("GET {path}");
    let documents = [get(RESOURCE_METADATA), get(ROOT_METADATA)];

    let without_fallback = authorization_error(call(&env, &server, oauth(&server)).await);
    let looked_up_without_fallback = server.metadata_requests();
    let falls_back = oauth(&server).fall_back_without_metadata();
    call(&env, &server, falls_back).await.unwrap();
    let with_metadata = server.received();
    server.own_issuer(|script| script.metadata_path = "/nowhere".into());
    let falls_back = oauth(&server).fall_back_without_metadata();
    call(&env, &server, falls_back).await.unwrap();
    let without = server.metadata_requests();

    assert!(
        without_fallback.contains("publishes no protected resource metadata"),
        "the fallback must be enabled explicitly: {without_fallback}"
    );
    assert_eq!(looked_up_without_fallback, documents);
    let requested = find(&with_metadata, "GET /authorize").query();
    assert_eq!(requested["resource"], server.url);
    let with_metadata = with_metadata.iter().filter(|it| it.path != "/mcp");
    let with_metadata: Vec<_> = with_metadata.map(|it| it.method_and_path()).collect();
    for looked_up in [with_metadata, without] {
        assert_eq!(looked_up[..2], documents);
        assert_eq!(
            looked_up[2..],
            [
                &*get(WELL_KNOWN),
                "POST /register",
                "GET /authorize",
                "POST /token"
            ]
        );
    }
}

async fn metadata_of_another_resource_is_rejected(env: ScenarioEnv) {
    let (issuer, server) = ProtectedServer::with_issuer().await;
    for resource in [
        "https://other.example/mcp",
        &format!("{}/other", server.url),
    ] {
        let document = json!({"resource": resource, "authorization_servers": [issuer.url]});
        let path = RESOURCE_METADATA.to_owned();
        server.overrides().documents.insert(path, document);

        let reason = authorization_error(call(&env, &server, oauth(&server)).await);

        assert!(reason.contains("another resource"), "{reason}");
        assert!(issuer.requests().is_empty(), "the issuer was contacted");
    }
}

async fn issuer_metadata_urls_are_tried_in_the_order_of_the_specification(env: ScenarioEnv) {
    let with_path = [
        "/.well-known/oauth-authorization-server/tenant",
        "/.well-known/openid-configuration/tenant",
        "/tenant/.well-known/openid-configuration",
    ];
    let without = [WELL_KNOWN, "/.well-known/openid-configuration"];
    for (path, places) in [("/tenant", &with_path[..]), ("", &without)] {
        let issuer = ScriptedIssuer::with_path(path).await;
        let server = ProtectedServer::trusting(&[&issuer]).await;
        for last in 0..places.len() {
            issuer.script().metadata_path = places[last].into();

            call(&env, &server, oauth(&server)).await.unwrap();

            let requests = issuer.requests();
            let looked_up = requests.iter().filter(|it| it.contains("/.well-known/"));
            let looked_up: Vec<_> = looked_up.map(|it| it.trim_start_matches("GET ")).collect();
            assert_eq!(looked_up, places[..=last]);
        }
    }
}

async fn metadata_of_another_issuer_is_rejected(env: ScenarioEnv) {
    let (issuer, server) = ProtectedServer::with_issuer().await;
    for named in ["https://honest.example", &format!("{}/", issuer.url)] {
        issuer.script().metadata["issuer"] = json!(named);

        let reason = authorization_error(call(&env, &server, oauth(&server)).await);

        assert!(reason.contains("another issuer"), "{reason}");
        assert_eq!(issuer.requests(), [format!("GET {WELL_KNOWN}")]);
    }
}

const ROOT_METADATA: &str = "/.well-known/oauth-protected-resource";
