//! Resources and templates.

use bowline::server::{Contents, not_found};
use bowline::types::{ListResourceTemplatesRequest, ListResourcesRequest, PaginatedRequestParams};
use bowline::{ErrorCode, Resource, Server};
use serde_json::{Value, json};

use crate::support::{CLIENT_TRANSPORTS, ClientTransport, library, peer_error, read, read_text};

#[tokio::test(start_paused = true)]
async fn a_resource_is_listed_and_read() {
    for transport in CLIENT_TRANSPORTS {
        let client = transport.connect(&library()).await;

        let params = PaginatedRequestParams::default();
        let listed = client
            .request::<ListResourcesRequest>(&params)
            .await
            .unwrap();
        let readme = read(&client, "docs://readme").await.unwrap();
        let logo = read(&client, "docs://logo").await.unwrap();
        let folder = read(&client, "docs://folder").await.unwrap();

        let uris: Vec<_> = listed.resources.iter().map(|of| of.uri.as_str()).collect();
        let expected = [
            "docs://folder",
            "docs://gone",
            "docs://logo",
            "docs://readme",
        ];
        assert_eq!(uris, expected, "{transport:?}");
        let readme = serde_json::to_value(&readme.contents).unwrap();
        let text = json!({"uri": "docs://readme", "mimeType": "text/plain", "text": "Read me."});
        assert_eq!(readme, json!([text]));
        let logo = serde_json::to_value(&logo.contents).unwrap();
        let blob = json!({"uri": "docs://logo", "mimeType": "image/png", "blob": "AQID"});
        assert_eq!(logo, json!([blob]));
        assert_eq!(folder.contents[1].uri(), "docs://folder/2");
    }
}

#[tokio::test(start_paused = true)]
async fn a_template_is_listed_and_read_with_its_variables() {
    for transport in CLIENT_TRANSPORTS {
        let client = transport.connect(&library()).await;

        let params = PaginatedRequestParams::default();
        let listed = client
            .request::<ListResourceTemplatesRequest>(&params)
            .await
            .unwrap();
        let page = read_text(&client, "docs://a%20book/pages/7").await;
        let other = read_text(&client, "docs://a/b").await;
        let no_number = read(&client, "docs://book/pages/x").await.unwrap_err();

        assert_eq!(
            listed.resource_templates[1].uri_template,
            "docs://{book}/pages/{page}"
        );
        assert_eq!(
            listed.resource_templates[1].description.as_deref(),
            Some("One page.")
        );
        assert_eq!(
            page, "page 7 of a book",
            "the template with more fixed text comes first"
        );
        assert_eq!(other, "a/b");
        assert_eq!(peer_error(no_number).code, ErrorCode::INVALID_PARAMS);
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_resource_is_refused_with_one_code_in_every_era_and_its_uri() {
    for transport in CLIENT_TRANSPORTS {
        let client = transport.connect(&library()).await;

        for uri in ["docs://gone", "other://x", "docs://a/../b", "docs://%2e%2e"] {
            let error = peer_error(read(&client, uri).await.unwrap_err());

            let code = ErrorCode::RESOURCE_NOT_FOUND;
            assert_eq!(error.code, code, "{transport:?} {uri}");
            assert_eq!(error.message, format!("resource not found: `{uri}`"));
            let data: Value = error.data.unwrap().decode().unwrap();
            assert_eq!(data, json!({ "uri": uri }));
        }
    }
}

#[test]
fn a_long_uri_is_shortened_in_the_message() {
    let error = not_found(&"x".repeat(10_000));

    assert!(error.message.ends_with("x…`"), "{}", error.message);
    assert!(error.message.len() < 300);
}

#[tokio::test(start_paused = true)]
async fn a_resource_without_contents_is_refused() {
    let nothing = Resource::raw("docs://x", "x", async |_, _| Ok(Vec::<Contents>::new()));
    let client = ClientTransport::Wire("2026-07-28")
        .connect(&Server::new("s", "1").resource(nothing))
        .await;

    let error = peer_error(read(&client, "docs://x").await.unwrap_err());

    assert_eq!(error.code, ErrorCode::RESOURCE_NOT_FOUND);
}
