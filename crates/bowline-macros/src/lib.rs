//! The attribute macros of [`bowline`](https://docs.rs/bowline), which re-exports them.
//!
//! They are syntactic sugar: a function becomes a function that returns a tool, and the expansion uses only the public
//! API.
//!
//! ```text
//! /// Adds two numbers.                       /// Adds two numbers.
//! #[tool]                                     fn add() -> Tool {
//! async fn add(                                   #[derive(Deserialize, JsonSchema)]
//!     /// the first                               struct AddArguments {
//!     a: i64,                      becomes            /// the first
//!     /// the second                                  a: i64,
//!     b: i64,                                         /// the second
//! ) -> i64 {                                          b: i64,
//!     a + b                                       }
//! }                                               async fn add(a: i64, b: i64) -> i64 { a + b }
//!                                                 Tool::new("add", |Args(AddArguments { a, b })| add(a, b))
//!                                                     .description("Adds two numbers.")
//!                                             }
//! ```

mod docs;
mod function;
mod options;
mod parameter;
mod prompt;
mod resource;
mod tool;
mod tools;

use proc_macro::TokenStream;
use syn::Error;

/// Turns a function into a tool: `server.tool(add)`.
///
/// Parameters are arguments of the tool, unless their type is an extractor: `Context`, `State<_>`, `Extension<_>`,
/// `Args<_>`, `Principal`, `Arc<Caller>`, `Meta`, `Json`. Doc comments become descriptions. An `Option` is an optional
/// argument. A function that is not `async` runs on tokio's blocking pool.
///
/// Options: `name`, `title`, `description`, `icon` (text); `read_only`, `destructive`, `idempotent`, `open_world`
/// (alone or `= false`); `deny_unknown`; `cancel = "signal"`; `max_concurrency = 8`; `scopes("files:read", …)`;
/// `requires(elicitation, sampling, …)`.
///
/// On a parameter: `#[tool(default)]`, `#[tool(default = 10)]`, `#[tool(name = "type")]`,
/// `#[header("Region")]` to mirror it in an HTTP header, `#[tool(extractor)]` for a custom extractor,
/// `#[tool(argument)]` for an argument whose type has the name of an extractor, and the field attributes of `serde`
/// and `schemars`.
#[proc_macro_attribute]
pub fn tool(attribute: TokenStream, item: TokenStream) -> TokenStream {
    finish(tool::expand(attribute.into(), item.into()))
}

/// Turns the methods of an `impl` block that are marked `#[tool]` into tools: `server.toolbox(service)`.
///
/// The methods remain callable. They take `&self`, which all calls share, or no receiver.
#[proc_macro_attribute]
pub fn tools(attribute: TokenStream, item: TokenStream) -> TokenStream {
    finish(tools::expand(&attribute.into(), item.into()))
}

/// Turns a function into a prompt: `server.prompt(review)`.
///
/// Parameters are the arguments of the prompt, as with [`macro@tool`]. They arrive as strings; numbers and `bool`s are
/// parsed.
///
/// Options: `name`, `title`, `description`, `icon`.
#[proc_macro_attribute]
pub fn prompt(attribute: TokenStream, item: TokenStream) -> TokenStream {
    finish(prompt::expand(attribute.into(), item.into()))
}

/// Turns a function into a resource: `server.resource(readme)`. If its URI is a template, it is a resource template,
/// whose parameters are the variables: `server.resource_template(forecast)`.
///
/// Options: `uri`, which is required; `name`, `title`, `description`, `icon`, `mime_type`.
#[proc_macro_attribute]
pub fn resource(attribute: TokenStream, item: TokenStream) -> TokenStream {
    finish(resource::expand(attribute.into(), item.into()))
}

fn finish(expanded: syn::Result<proc_macro2::TokenStream>) -> TokenStream {
    expanded.unwrap_or_else(Error::into_compile_error).into()
}
