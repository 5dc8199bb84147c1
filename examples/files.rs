//! A server for the text files of one folder: a resource, a resource template, and completion of file names.
//!
//! `cargo run --example files -- docs` serves the folder `docs` over standard input and output. A client sees
//!
//! - the resource `files://index`, a list of the files;
//! - the resource template `files://text/{name}`, the text of one of them;
//! - suggestions for `{name}` while the user types.
//!
//! A URI such as `files://text/..%2Fsecret` is refused before it reaches the handler: by default, variables of a
//! template match no `..` and no encoded slashes.

use std::path::PathBuf;
use std::{env, io};

use bowline::RpcError;
use bowline::prelude::*;
use bowline::server::{Completer, RequestedUri, not_found};

/// The folder that is served. Handlers get a clone of it.
#[derive(Clone)]
struct Folder(PathBuf);

impl Folder {
    /// Returns the names of all files in the folder, sorted.
    async fn names(&self) -> io::Result<Vec<String>> {
        let mut entries = tokio::fs::read_dir(&self.0).await?;
        let mut names = Vec::new();
        while let Some(entry) = entries.next_entry().await? {
            if entry.file_type().await?.is_file() {
                names.extend(entry.file_name().into_string());
            }
        }
        names.sort();
        Ok(names)
    }
}

/// Lists the files, one per line.
#[resource(uri = "files://index", mime_type = "text/plain")]
async fn index(State(folder): State<Folder>) -> io::Result<String> {
    Ok(folder.names().await?.join("\n"))
}

/// The text of one file.
#[resource(uri = "files://text/{name}", mime_type = "text/plain")]
async fn text(
    name: String,
    State(folder): State<Folder>,
    requested: RequestedUri,
) -> Result<String, ToolError> {
    // A list of what may be read is safer than a path with checks.
    if !folder.names().await?.contains(&name) {
        return Err(not_found(&requested.uri).into());
    }
    Ok(tokio::fs::read_to_string(folder.0.join(name)).await?)
}

fn server(folder: Folder) -> Server {
    let names = Completer::for_template("files://text/{name}", "name", async |input, cx| {
        let folder = cx
            .state::<Folder>()
            .ok_or_else(|| RpcError::internal("no folder"))?;
        Ok(input.matching(folder.names().await.map_err(RpcError::internal)?))
    });
    Server::new("files", "1.0.0")
        .instructions("Read `files://index` first.")
        .state(folder)
        .resource(index)
        .resource_template(text)
        .completer(names)
}

#[tokio::main]
async fn main() -> bowline::Result<()> {
    let folder = env::args_os().nth(1).unwrap_or_else(|| ".".into());
    server(Folder(folder.into())).serve_stdio().await
}
