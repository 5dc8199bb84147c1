//! The expression that constructs a tool, prompt, resource, resource template or completer.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Error, LitStr, Result};

use crate::options::{AttributeKind, AttributeOptions};

/// The parts of a definition that depend on whether the handler is a function or a method.
pub(crate) struct HandlerParts {
    /// The default of the option `name`.
    pub(crate) name: String,
    pub(crate) docs: Option<String>,
    /// A function or closure; asynchronous, or synchronous for `Tool::blocking`.
    pub(crate) handler: TokenStream,
    pub(crate) is_async: bool,
    /// The names of the arguments, and their spans.
    pub(crate) arguments: Vec<(String, Span)>,
    /// The span for errors about the handler: its return type.
    pub(crate) span: Span,
}

/// The constructor of a definition.
pub(crate) struct Definition {
    /// The type of the expression.
    pub(crate) ty: TokenStream,
    pub(crate) expression: TokenStream,
    /// The method of `Server` that adds it.
    pub(crate) add: TokenStream,
}

impl Definition {
    pub(crate) fn new(
        kind: AttributeKind,
        options: &AttributeOptions,
        parts: &HandlerParts,
    ) -> Result<Self> {
        match kind {
            AttributeKind::Tool => Ok(Self::tool(options, parts)),
            AttributeKind::Prompt => Ok(Self::prompt(options, parts)),
            AttributeKind::Resource => Self::resource(options, parts),
            AttributeKind::Completion => Self::completer(options, parts),
        }
    }

    fn tool(options: &AttributeOptions, parts: &HandlerParts) -> Self {
        let bowline = &options.bowline;
        let HandlerParts { handler, span, .. } = parts;
        let constructor = match parts.is_async {
            true => quote!(new),
            false => quote!(blocking),
        };
        let (name, setters) = (parts.name(options), options.setters(parts.docs.clone()));
        let tool = quote_spanned!(*span=> #bowline::Tool::#constructor(#name, #handler) #setters);
        Self {
            ty: quote!(#bowline::Tool),
            expression: tool,
            add: quote!(tool),
        }
    }

    fn prompt(options: &AttributeOptions, parts: &HandlerParts) -> Self {
        let bowline = &options.bowline;
        let HandlerParts { handler, span, .. } = parts;
        let (name, setters) = (parts.name(options), options.setters(parts.docs.clone()));
        let prompt = quote_spanned!(*span=> #bowline::Prompt::new(#name, #handler) #setters);
        Self {
            ty: quote!(#bowline::Prompt),
            expression: prompt,
            add: quote!(prompt),
        }
    }

    fn resource(options: &AttributeOptions, parts: &HandlerParts) -> Result<Self> {
        let bowline = &options.bowline;
        let HandlerParts { handler, span, .. } = parts;
        let Some(uri) = &options.uri else {
            let why = "missing option `uri`: `#[resource(uri = \"docs://readme\")]`";
            return Err(Error::new(Span::call_site(), why));
        };
        check_variables(uri, &parts.arguments)?;
        let (name, setters) = (parts.name(options), options.setters(parts.docs.clone()));
        if !uri.value().contains('{') {
            let resource =
                quote_spanned!(*span=> #bowline::Resource::new(#uri, #name, #handler) #setters);
            return Ok(Self {
                ty: quote!(#bowline::Resource),
                expression: resource,
                add: quote!(resource),
            });
        }
        let template = quote_spanned! {*span=>
            #bowline::ResourceTemplate::new(#uri, #name, #handler).map(|template| template #setters)
        };
        Ok(Self {
            ty: quote!(#bowline::Result<#bowline::ResourceTemplate>),
            expression: template,
            add: quote!(resource_template),
        })
    }

    fn completer(options: &AttributeOptions, parts: &HandlerParts) -> Result<Self> {
        let bowline = &options.bowline;
        let HandlerParts { handler, span, .. } = parts;
        let reference = match (&options.prompt, &options.template) {
            (Some(prompt), None) => quote!(#bowline::types::PromptReference::new(#prompt)),
            (None, Some(template)) => {
                quote!(#bowline::types::ResourceTemplateReference::new(#template))
            }
            _ => return Err(incomplete_completion()),
        };
        let argument = options
            .argument
            .as_ref()
            .ok_or_else(incomplete_completion)?;
        if let Some(template) = &options.template {
            check_variables(template, &[(argument.value(), argument.span())])?;
        }
        let completer = quote_spanned! {*span=>
            #bowline::server::Completer::new(#reference, #argument, #handler)
        };
        Ok(Self {
            ty: quote!(#bowline::server::Completer),
            expression: completer,
            add: quote!(completer),
        })
    }
}

impl HandlerParts {
    fn name(&self, options: &AttributeOptions) -> String {
        let name = options.name.as_ref().map(LitStr::value);
        name.unwrap_or_else(|| self.name.clone())
    }
}

fn incomplete_completion() -> Error {
    let why = "name what is completed: `#[completion(prompt = \"greet\", argument = \"language\")]` or \
               `#[completion(template = \"weather://{city}\", argument = \"city\")]`";
    Error::new(Span::call_site(), why)
}

/// Checks that every argument is a variable of the template; others would always be missing.
fn check_variables(uri: &LitStr, arguments: &[(String, Span)]) -> Result<()> {
    let template = uri.value();
    let variables = variables(&template);
    for (name, span) in arguments {
        if variables.contains(&name.as_str()) {
            continue;
        }
        let known = match &*variables {
            [] => "it has none; an argument is a variable such as `{name}` in the URI".to_owned(),
            known => format!("it has {}", list(known)),
        };
        let why = format!("`{template}` has no variable `{{{name}}}`: {known}");
        return Err(Error::new(*span, why));
    }
    Ok(())
}

fn list(variables: &[&str]) -> String {
    let variables = variables.iter().map(|name| format!("`{{{name}}}`"));
    variables.collect::<Vec<_>>().join(", ")
}

/// Returns the names of the variables of a URI template.
fn variables(template: &str) -> Vec<&str> {
    let expressions = template.split('{').skip(1);
    expressions
        .filter_map(|rest| rest.split_once('}'))
        .flat_map(|(expression, _)| expression.trim_start_matches(OPERATORS).split(','))
        .map(|variable| {
            variable
                .trim_end_matches('*')
                .split(':')
                .next()
                .unwrap_or_default()
        })
        .collect()
}

const OPERATORS: &[char] = &['+', '#', '.', '/', ';', '?', '&'];
