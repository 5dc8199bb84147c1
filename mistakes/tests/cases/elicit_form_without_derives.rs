//! A form that derives nothing.
//! Says: derive `serde::Deserialize` and `bowline::schemars::JsonSchema`

use bowline::prelude::*;

struct Name {
    name: String,
}

#[tool]
async fn greet(cx: Context) -> Result<String, ToolError> {
    let form: Name = cx.elicit("name", "Who are you?").await?;
    Ok(form.name)
}

fn main() {}
