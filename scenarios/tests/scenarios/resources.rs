//! Resources and templates: their metadata and their contents.

use bowline::server::Contents;
use bowline::types::{
    Annotations, Icon, ListResourceTemplatesRequest, ListResourcesRequest, PaginatedRequestParams,
};
use bowline::{ErrorCode, Resource, ResourceTemplate, Server, ToolError};
use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::{Value, json};

use crate::support::{contents, fixed_result, peer_error, read, value};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(resources_are_advertised, "resources:capability:declared"),
        scenario!(
            a_resource_is_listed_with_its_metadata,
            "resources:list:basic",
            "resources:annotations",
            "mcpserver:resource:static",
        ),
        scenario!(text_is_read_with_its_uri_and_type, "resources:read:text"),
        scenario!(bytes_are_read_as_base64, "resources:read:blob"),
        scenario!(
            a_template_is_listed_and_its_variables_reach_the_handler,
            "resources:templates:list",
            "resources:read:template-vars",
            "mcpserver:resource:template",
        ),
        scenario!(
            an_unknown_uri_gets_one_error_in_every_version,
            "resources:read:unknown-uri",
            "mcpserver:resource:unknown-uri",
        ),
        scenario!(
            a_panic_in_a_resource_handler_is_not_disclosed,
            "mcpserver:resource:read-throws-surfaced",
        ),
        scenario!(
            a_duplicate_resource_uri_is_rejected,
            "mcpserver:resource:duplicate-name",
        ),
        scenario!(
            a_resource_link_in_a_tool_result_can_be_read,
            "flow:tool-result:resource-link-follow",
        )
        .since("2025-06-18"),
    ]
}

fn readme() -> Resource {
    Resource::text("docs://readme", "readme", "Read me.").mime_type("text/plain")
}

async fn listed(client: &bowline::Client) -> Value {
    let params = PaginatedRequestParams::default();
    let page = client
        .request::<ListResourcesRequest>(&params)
        .await
        .unwrap();
    serde_json::to_value(page.resources).unwrap()
}

async fn resources_are_advertised(env: ScenarioEnv) {
    let without_updates = Server::new("without_updates", "1").resource(readme());
    let with_updates = Server::new("with_updates", "1")
        .resource(readme())
        .resource_subscriptions();

    let of_without_updates = env
        .discover_result(&env.connect(&without_updates).await)
        .await;
    let of_with_updates = env.discover_result(&env.connect(&with_updates).await).await;

    let of_without_updates =
        serde_json::to_value(of_without_updates.capabilities.resources).unwrap();
    let of_with_updates = serde_json::to_value(of_with_updates.capabilities.resources).unwrap();
    assert_eq!(of_without_updates, json!({"listChanged": true}));
    assert_eq!(
        of_with_updates,
        json!({"listChanged": true, "subscribe": true})
    );
}

async fn a_resource_is_listed_with_its_metadata(env: ScenarioEnv) {
    let annotations =
        json!({"audience": ["user"], "priority": 0.5, "lastModified": "2025-01-12T15:00:58Z"});
    let annotations: Annotations = serde_json::from_value(annotations).unwrap();
    let full = readme()
        .title("Read me")
        .description("What to know first.")
        .annotations(annotations)
        .icons([Icon::new("https://example.com/icon.png")])
        .size(8);
    let client = env.connect(&Server::new("s", "1").resource(full)).await;

    let listed = listed(&client).await;
    let read = contents(&client, "docs://readme").await;

    let resource = &listed[0];
    assert_eq!(resource["uri"], "docs://readme");
    assert_eq!(resource["name"], "readme");
    assert_eq!(resource["description"], "What to know first.");
    assert_eq!(resource["mimeType"], "text/plain");
    assert_eq!(resource["size"], 8);
    assert_eq!(resource["annotations"]["audience"], json!(["user"]));
    assert_eq!(resource["annotations"]["priority"], 0.5);
    assert_eq!(
        resource["annotations"]["lastModified"],
        "2025-01-12T15:00:58Z"
    );
    assert_eq!(read[0]["text"], "Read me.");
}

async fn text_is_read_with_its_uri_and_type(env: ScenarioEnv) {
    let client = env.connect(&Server::new("s", "1").resource(readme())).await;

    let read = contents(&client, "docs://readme").await;

    let expected = json!([{"uri": "docs://readme", "mimeType": "text/plain", "text": "Read me."}]);
    assert_eq!(read, expected);
}

async fn bytes_are_read_as_base64(env: ScenarioEnv) {
    let logo = Resource::raw("docs://logo", "logo", async |_, _| {
        Ok(Contents::blob([0, 1, 2, 255]).mime_type("image/png"))
    });
    let client = env.connect(&Server::new("s", "1").resource(logo)).await;

    let read = contents(&client, "docs://logo").await;

    assert_eq!(
        read,
        json!([{"uri": "docs://logo", "mimeType": "image/png", "blob": "AAEC/w=="}])
    );
}

async fn a_template_is_listed_and_its_variables_reach_the_handler(env: ScenarioEnv) {
    let page = ResourceTemplate::raw("docs://{book}/pages/{page}", "page", async |request, _| {
        let page: u32 = request.variables.parse("page")?;
        let book = request.variables.text("book").unwrap_or_default();
        Ok(format!("page {page} of {book}"))
    });
    let page = page
        .unwrap()
        .description("One page.")
        .mime_type("text/plain");
    let client = env
        .connect(&Server::new("s", "1").resource_template(page))
        .await;

    let params = PaginatedRequestParams::default();
    let listed = client
        .request::<ListResourceTemplatesRequest>(&params)
        .await
        .unwrap();
    let read = contents(&client, "docs://a%20book/pages/7").await;
    let no_number = peer_error(self::read(&client, "docs://book/pages/x").await);

    let template = serde_json::to_value(&listed.resource_templates[0]).unwrap();
    let expected = json!({
        "uriTemplate": "docs://{book}/pages/{page}",
        "name": "page",
        "description": "One page.",
        "mimeType": "text/plain",
    });
    assert_eq!(template, expected);
    assert_eq!(read[0]["text"], "page 7 of a book");
    assert_eq!(read[0]["uri"], "docs://a%20book/pages/7");
    assert_eq!(no_number.code, ErrorCode::INVALID_PARAMS);
}

async fn an_unknown_uri_gets_one_error_in_every_version(env: ScenarioEnv) {
    let client = env.connect(&Server::new("s", "1").resource(readme())).await;

    let error = peer_error(read(&client, "docs://nowhere").await);

    // On the wire the code is that of the version.
    assert_eq!(error.code, ErrorCode::RESOURCE_NOT_FOUND);
    assert_eq!(
        value(&error.data.unwrap()),
        json!({"uri": "docs://nowhere"})
    );
}

async fn a_panic_in_a_resource_handler_is_not_disclosed(env: ScenarioEnv) {
    let broken = Resource::raw(
        "docs://broken",
        "broken",
        async |_, _| -> Result<String, ToolError> { panic!("the password is 1234") },
    );
    let client = env.connect(&Server::new("s", "1").resource(broken)).await;

    let error = peer_error(read(&client, "docs://broken").await);

    assert_eq!(error.code, ErrorCode::INTERNAL_ERROR);
    assert!(!format!("{error:?}").contains("1234"), "{error:?}");
}

async fn a_duplicate_resource_uri_is_rejected(env: ScenarioEnv) {
    let other = || Resource::text("docs://readme", "other", "Me instead.");
    let refused = Server::new("s", "1").resource(readme()).resource(other());
    let error = refused.check().unwrap_err();
    assert_eq!(error.to_string(), "duplicate resource URI `docs://readme`");

    let server = Server::new("s", "1").resource(readme());
    let client = env.connect(&server).await;
    let before = listed(&client).await;
    let _server = server.resource(other());

    // A server that is served logs the error, and keeps its resource.
    assert_eq!(listed(&client).await, before);
}

async fn a_resource_link_in_a_tool_result_can_be_read(env: ScenarioEnv) {
    let link = json!({"type": "resource_link", "uri": "docs://readme", "name": "readme"});
    let server = Server::new("s", "1")
        .resource(readme())
        .tool(fixed_result("find", json!({"content": [link]})));
    let client = env.connect(&server).await;

    let found = client.call_tool("find", ()).await.unwrap();
    let uri = value(found.json())["content"][0]["uri"]
        .as_str()
        .unwrap()
        .to_owned();
    let read = contents(&client, &uri).await;

    assert_eq!(read[0]["text"], "Read me.");
}
