//! Where a client learns who issues tokens for a server, and what of that it believes.

use scenarios::{Scenario, World, scenario};
use serde_json::json;

use crate::client_authorization::find;
use crate::guarded::{Guarded, Issuer, RESOURCE_METADATA, WELL_KNOWN, call, oauth, why};

pub(crate) fn scenarios() -> Vec<Scenario> {
    let all = vec![
        scenario!(
            the_document_that_the_server_names_comes_first_and_then_the_known_places,
            "client-auth:prm-discovery:fallback-order",
        ),
        scenario!(
            an_older_server_is_its_own_authority,
            "client-auth:prm-discovery:no-prm-fallback",
        ),
        scenario!(
            metadata_about_another_server_are_not_used,
            "client-auth:prm-resource-mismatch",
        ),
        scenario!(
            an_issuer_is_looked_for_in_the_order_of_the_specification,
            "client-auth:as-metadata-discovery:priority-order",
        ),
        scenario!(
            metadata_about_another_issuer_are_not_used,
            "client-auth:as-metadata-discovery:issuer-validation",
        ),
    ];
    all.into_iter().map(Scenario::over_http).collect()
}

async fn the_document_that_the_server_names_comes_first_and_then_the_known_places(world: World) {
    let issuer = Issuer::start().await;
    let server = Guarded::by(&[&issuer]).await;
    let origin = server.url.trim_end_matches("/mcp").to_owned();
    let about =
        |resource: &str| json!({"resource": resource, "authorization_servers": [issuer.url]});
    let place = |path: &str, resource: &str| {
        let mut front = server.front();
        front.documents.clear();
        for known in [RESOURCE_METADATA, ROOT_METADATA] {
            front.documents.insert(known.to_owned(), json!(null));
        }
        front.documents.insert(path.to_owned(), about(resource));
    };
    let challenge = |challenge: String| server.front().challenges.insert(401, challenge);

    place("/elsewhere", &server.url);
    challenge(format!("Bearer resource_metadata=\"{origin}/elsewhere\""));
    call(&world, &server, oauth(&server)).await.unwrap();
    let named = server.looked_for();
    place(RESOURCE_METADATA, &server.url);
    challenge("Bearer".into());
    call(&world, &server, oauth(&server)).await.unwrap();
    let by_path = server.looked_for();
    place(ROOT_METADATA, &origin);
    call(&world, &server, oauth(&server)).await.unwrap();
    let at_root = server.looked_for();

    let get = |path: &str| format!("GET {path}");
    assert_eq!(named, [get("/elsewhere")]);
    assert_eq!(by_path, [get(RESOURCE_METADATA)]);
    assert_eq!(at_root, [get(RESOURCE_METADATA), get(ROOT_METADATA)]);
}

async fn an_older_server_is_its_own_authority(world: World) {
    let server = Guarded::on_its_own().await;
    let get = |path: &str| format!("GET {path}");
    let documents = [get(RESOURCE_METADATA), get(ROOT_METADATA)];

    let unasked = why(call(&world, &server, oauth(&server)).await);
    let looked_unasked = server.looked_for();
    let falls_back = oauth(&server).fall_back_without_metadata();
    call(&world, &server, falls_back).await.unwrap();
    let with_metadata = server.received();
    server.own_issuer(|script| script.metadata_at = "/nowhere".into());
    let falls_back = oauth(&server).fall_back_without_metadata();
    call(&world, &server, falls_back).await.unwrap();
    let without = server.looked_for();

    assert!(
        unasked.contains("fall_back_without_metadata"),
        "only where an application asks for it: {unasked}"
    );
    assert_eq!(looked_unasked, documents);
    let asked = find(&with_metadata, "GET /authorize").query();
    assert_eq!(asked["resource"], server.url);
    let with_metadata = with_metadata.iter().filter(|it| it.path != "/mcp");
    let with_metadata: Vec<_> = with_metadata.map(|it| it.what()).collect();
    for looked in [with_metadata, without] {
        assert_eq!(looked[..2], documents);
        assert_eq!(
            looked[2..],
            [
                &*get(WELL_KNOWN),
                "POST /register",
                "GET /authorize",
                "POST /token"
            ]
        );
    }
}

async fn metadata_about_another_server_are_not_used(world: World) {
    let issuer = Issuer::start().await;
    let server = Guarded::by(&[&issuer]).await;
    for resource in [
        "https://other.example/mcp",
        &format!("{}/other", server.url),
    ] {
        let document = json!({"resource": resource, "authorization_servers": [issuer.url]});
        let path = RESOURCE_METADATA.to_owned();
        server.front().documents.insert(path, document);

        let reason = why(call(&world, &server, oauth(&server)).await);

        assert!(reason.contains("another resource"), "{reason}");
        assert!(issuer.requests().is_empty(), "nobody is visited");
    }
}

async fn an_issuer_is_looked_for_in_the_order_of_the_specification(world: World) {
    let with_path = [
        "/.well-known/oauth-authorization-server/tenant",
        "/.well-known/openid-configuration/tenant",
        "/tenant/.well-known/openid-configuration",
    ];
    let without = [WELL_KNOWN, "/.well-known/openid-configuration"];
    for (path, places) in [("/tenant", &with_path[..]), ("", &without)] {
        let issuer = Issuer::at(path).await;
        let server = Guarded::by(&[&issuer]).await;
        for last in 0..places.len() {
            issuer.script().metadata_at = places[last].into();

            call(&world, &server, oauth(&server)).await.unwrap();

            let requests = issuer.requests();
            let looked = requests.iter().filter(|it| it.contains("/.well-known/"));
            let looked: Vec<_> = looked.map(|it| it.trim_start_matches("GET ")).collect();
            assert_eq!(looked, places[..=last]);
        }
    }
}

async fn metadata_about_another_issuer_are_not_used(world: World) {
    let issuer = Issuer::start().await;
    let server = Guarded::by(&[&issuer]).await;
    for named in ["https://honest.example", &format!("{}/", issuer.url)] {
        issuer.script().metadata["issuer"] = json!(named);

        let reason = why(call(&world, &server, oauth(&server)).await);

        assert!(reason.contains("another issuer"), "{reason}");
        assert_eq!(issuer.requests(), [format!("GET {WELL_KNOWN}")]);
    }
}

const ROOT_METADATA: &str = "/.well-known/oauth-protected-resource";
