//! The attribute macros of [`bowline`](https://docs.rs/bowline), which re-exports them.
//!
//! They are sugar: a function becomes a function that makes a tool, with nothing in it that could not
//! have been typed by hand against the public API.
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

/// Makes a tool of a function: `server.tool(add)`.
///
/// Parameters are arguments, which the model passes, unless their type is one that handlers are given:
/// `Context`, `State<_>`, `Extension<_>`, `Args<_>`, `Principal`, `Arc<Caller>`, `Meta`, `Json`. Doc comments become
/// descriptions. An `Option` may be left out. A function that is not `async` runs on a thread of its own.
///
/// Options: `name`, `title`, `description`, `icon` (text); `read_only`, `destructive`, `idempotent`,
/// `open_world` (alone or `= false`); `cancel = "signal"`; `at_once = 8`; `scopes("files:read", …)`;
/// `asks(elicitation, sampling, …)`.
///
/// On a parameter: `#[tool(default)]`, `#[tool(default = 10)]`, `#[tool(name = "type")]`,
/// `#[header("Region")]` to mirror it in an HTTP header, `#[tool(given)]` for an extractor of one's own,
/// `#[tool(argument)]` for an argument whose type is called like an extractor, and whatever `serde` and
/// `schemars` know for a field.
#[proc_macro_attribute]
pub fn tool(attribute: TokenStream, item: TokenStream) -> TokenStream {
    finish(tool::expand(attribute.into(), item.into()))
}

/// Makes tools of the methods of an `impl` block that are marked `#[tool]`: `server.toolbox(service)`.
///
/// The methods stay what they are. They take `&self`, which all calls share.
#[proc_macro_attribute]
pub fn tools(attribute: TokenStream, item: TokenStream) -> TokenStream {
    finish(tools::expand(&attribute.into(), item.into()))
}

/// Makes a prompt of a function: `server.prompt(review)`.
///
/// Parameters are the arguments of the prompt, as with [`macro@tool`]. They arrive as text; what is a
/// number or a `bool` is read from it.
///
/// Options: `name`, `title`, `description`, `icon`.
#[proc_macro_attribute]
pub fn prompt(attribute: TokenStream, item: TokenStream) -> TokenStream {
    finish(prompt::expand(attribute.into(), item.into()))
}

/// Makes a resource of a function: `server.resource(readme)`. If its URI is a template, the parameters
/// are the variables, and it is offered by `server.resource_template(forecast)`.
///
/// Options: `uri`, without which there is none; `name`, `title`, `description`, `icon`, `mime_type`.
#[proc_macro_attribute]
pub fn resource(attribute: TokenStream, item: TokenStream) -> TokenStream {
    finish(resource::expand(attribute.into(), item.into()))
}

fn finish(expanded: syn::Result<proc_macro2::TokenStream>) -> TokenStream {
    expanded.unwrap_or_else(Error::into_compile_error).into()
}
