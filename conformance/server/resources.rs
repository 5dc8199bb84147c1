//! Resources: a text, a blob, one for subscriptions, and a template.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bowline::prelude::*;
use serde_json::json;

use crate::content::PNG;

pub(crate) fn register(server: Server) -> Server {
    let text = Resource::text(
        "test://static-text",
        "Static text",
        "This is the content of the static text resource.",
    );
    let picture = STANDARD.decode(PNG).unwrap_or_default();
    let binary = Resource::blob("test://static-binary", "Static binary", picture);
    let watched = Resource::text("test://watched-resource", "Watched", "Nothing new.");
    server
        .resource(text.description("A text.").mime_type("text/plain"))
        .resource(binary.description("A picture.").mime_type("image/png"))
        .resource(
            watched
                .description("A text to subscribe to.")
                .mime_type("text/plain"),
        )
        .resource_template(template)
}

/// The data of one item.
#[resource(uri = "test://template/{id}/data", mime_type = "application/json")]
async fn template(id: String) -> String {
    json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")}).to_string()
}
