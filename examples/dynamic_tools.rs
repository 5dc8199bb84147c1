//! A server whose tools change while it runs, and that notifies its clients of it.
//!
//! `cargo run --example dynamic_tools` waits for a client on standard input. A call of `teach` with
//! `{"name": "motto", "text": "Hold fast."}` adds a tool `motto`, which returns the text; `forget` removes it again.
//! After both, clients that subscribed to the list of tools are notified, and list it again.

use bowline::prelude::*;
use bowline::schemars::{self, JsonSchema};
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
struct Lesson {
    /// the name of the new tool
    name: String,
    /// what it returns
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

/// Adds tools that need the server itself, as these change its list.
fn add_teacher(server: &Server) -> bowline::Result<()> {
    let school = server.clone();
    let teach = Tool::new("teach", move |Args(lesson): Args<Lesson>| {
        let school = school.clone();
        async move {
            if ["teach", "forget"].contains(&lesson.name.as_str()) {
                return Err(ToolError::new(format!(
                    "`{}` cannot be replaced",
                    lesson.name
                )));
            }
            let text = lesson.text;
            let tool = Tool::new(&lesson.name, move || std::future::ready(text.clone()));
            school.tools().add(tool)?;
            Ok(format!("`{}` is a tool now", lesson.name))
        }
    });
    let school = server.clone();
    let forget = Tool::new("forget", move |Args(Name { name }): Args<Name>| {
        let school = school.clone();
        async move {
            let known =
                !["teach", "forget"].contains(&name.as_str()) && school.tools().remove(&name);
            known
                .then(|| format!("`{name}` is forgotten"))
                .ok_or("no such tool was taught")
        }
    });
    server
        .tools()
        .add(teach.description("Adds a tool that returns a text."))?;
    server
        .tools()
        .add(forget.description("Removes a tool that was added."))
}

#[tokio::main]
async fn main() -> bowline::Result<()> {
    let server = Server::new("school", "1.0.0");
    add_teacher(&server)?;
    server.serve_stdio().await
}
