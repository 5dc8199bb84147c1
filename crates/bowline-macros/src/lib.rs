//! The attribute macros of [`bowline`](https://docs.rs/bowline), which re-exports them.
//!
//! They are syntactic sugar: the expansion uses only the public API. A function keeps its name and parameters, and can
//! still be called; its return type carries the definition.
//!
//! ```text
//! /// Adds two numbers.             /// Adds two numbers.
//! #[tool]                           fn add(a: i64, b: i64)
//! async fn add(                         -> FunctionCall<impl Definition<Item = Tool>, impl Future<Output = i64>>
//!     /// the first                 {
//!     a: i64,               becomes     #[derive(Deserialize, JsonSchema)]
//!     /// the second                    struct AddArguments { /* the first */ a: i64, /* the second */ b: i64 }
//!     b: i64,
//! ) -> i64 {                            async fn add(a: i64, b: i64) -> i64 { a + b }
//!     a + b
//! }                                     enum __Definition {}
//!                                       impl Definition for __Definition {
//!                                           type Item = Tool;
//!                                           fn definition() -> Tool {
//!                                               Tool::new("add", |Args(AddArguments { a, b })| add(a, b))
//!                                                   .description("Adds two numbers.")
//!                                           }
//!                                       }
//!                                       FunctionCall::<__Definition, _>::new(add(a, b))
//!                                   }
//! ```

mod definition;
mod docs;
mod function;
mod options;
mod parameter;
mod task_options;
mod tools;

use options::AttributeKind;

use proc_macro::TokenStream;
use syn::Error;

/// Makes a function a tool: `server.tool(add)`. It can still be called: `add(1, 2).await`. If it is not `async`, a call
/// returns a smart pointer to the value (`bowline::server::FunctionOutput`).
///
/// Parameters are arguments of the tool, unless their type is an extractor (`Context`, `State<_>`, `Extension<_>`,
/// `Args<_>`, `Principal`, `Arc<Caller>`, `Meta`, `Json`) or their pattern is (`State(x)`). Doc comments become
/// descriptions. An `Option` is an optional argument. A function that is not `async` runs on tokio's blocking pool.
///
/// Options: `name`, `title`, `description`, `icon` (text); `read_only`, `destructive`, `idempotent`, `open_world`
/// (alone or `= false`); `deny_unknown`; `cancel = "signal"`; `max_concurrency = 8`; `scopes("files:read", …)`;
/// `requires(elicitation, sampling, …)`; `settings(…)`, an expression of type `ToolSettings`, for an extension; `task` or
/// `task(required, resumable, at_most_once, after = "5s", ttl = "1h")`, for the extension in the crate `bowline-tasks`,
/// which must be a dependency.
///
/// On a parameter: `#[tool(default)]`, `#[tool(default = 10)]`, `#[tool(name = "type")]`,
/// `#[header("Region")]` to mirror it in an HTTP header, `#[tool(extractor)]` for an extractor with another name,
/// `#[tool(argument)]` for an argument whose type has the name of an extractor, and the field attributes of `serde`
/// and `schemars`.
#[proc_macro_attribute]
pub fn tool(attribute: TokenStream, item: TokenStream) -> TokenStream {
    on_function(AttributeKind::Tool, attribute, item)
}

/// Makes a `Toolbox` of the methods of an `impl` block that are marked `#[tool]`, `#[prompt]`, `#[resource]` or
/// `#[completion]`: `server.toolbox(service)`.
///
/// The methods remain callable. They take `&self`, which all calls share, or no receiver.
#[proc_macro_attribute]
pub fn tools(attribute: TokenStream, item: TokenStream) -> TokenStream {
    finish(tools::expand(&attribute.into(), item.into()))
}

/// Makes a function a prompt: `server.prompt(review)`.
///
/// Parameters are the arguments of the prompt, as with [`macro@tool`]. They arrive as strings; numbers and `bool`s are
/// parsed.
///
/// Options: `name`, `title`, `description`, `icon`.
#[proc_macro_attribute]
pub fn prompt(attribute: TokenStream, item: TokenStream) -> TokenStream {
    on_function(AttributeKind::Prompt, attribute, item)
}

/// Makes a function a resource: `server.resource(readme)`. If its URI is a template, it is a resource template,
/// whose parameters are the variables: `server.resource_template(forecast)`.
///
/// Options: `uri`, which is required; `name`, `title`, `description`, `icon`, `mime_type`.
#[proc_macro_attribute]
pub fn resource(attribute: TokenStream, item: TokenStream) -> TokenStream {
    on_function(AttributeKind::Resource, attribute, item)
}

/// Makes a function a completer of a prompt's argument or a template's variable: `server.completer(languages)`.
///
/// It takes extractors, among them `CompletionInput` with what is typed so far. Other parameters are the other
/// arguments of the prompt or template, as far as the client has resolved them, and should be `Option`s.
///
/// Options, two of which are required: `prompt` (a name) or `template` (a URI template), and `argument`.
#[proc_macro_attribute]
pub fn completion(attribute: TokenStream, item: TokenStream) -> TokenStream {
    on_function(AttributeKind::Completion, attribute, item)
}

fn on_function(kind: AttributeKind, attribute: TokenStream, item: TokenStream) -> TokenStream {
    finish(function::expand(kind, attribute.into(), item.into()))
}

fn finish(expanded: syn::Result<proc_macro2::TokenStream>) -> TokenStream {
    expanded.unwrap_or_else(Error::into_compile_error).into()
}
