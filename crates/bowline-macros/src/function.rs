//! `#[tool]`, `#[prompt]`, `#[resource]` or `#[completion]` on a function.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, Error, FnArg, Ident, Item, ItemFn, Pat, Path, Result, ReturnType, Signature};

use crate::definition::{Definition, HandlerParts};
use crate::options::{AttributeKind, AttributeOptions};
use crate::parameter::{self, Parameter};
use crate::{docs, options};

pub(crate) fn expand(
    kind: AttributeKind,
    attribute: TokenStream,
    item: TokenStream,
) -> Result<TokenStream> {
    let options = AttributeOptions::read(kind, attribute)?;
    let item = match syn::parse2(item)? {
        Item::Fn(item) => item,
        Item::Impl(item) => {
            let why = format!(
                "`#[{kind}]` belongs on a function; for methods put `#[tools]` on the `impl` block"
            );
            return Err(Error::new_spanned(item.self_ty, why));
        }
        item => {
            let why = format!("`#[{kind}]` belongs on a function");
            return Err(Error::new_spanned(item, why));
        }
    };
    let function = Function::read(item)?;
    let bowline = &options.bowline;
    let parts = HandlerParts {
        name: options::ident_name(&function.item.sig.ident),
        docs: docs::text(&function.item.attrs),
        handler: function.handler(kind, bowline),
        is_async: function.is_async(),
        arguments: parameter::names(&function.parameters).collect(),
        span: return_span(&function.item.sig),
    };
    let definition = Definition::new(kind, &options, &parts)?;
    Ok(function.with_definition(&definition, bowline))
}

/// How many parameters a function has for which `bowline` implements `IntoDefinition`.
const MAX_PARAMETERS: usize = 16;

/// A function with its parsed parameters.
struct Function {
    item: ItemFn,
    parameters: Vec<Parameter>,
    arguments: Ident,
}

impl Function {
    fn read(mut item: ItemFn) -> Result<Self> {
        reject_generics(&item.sig)?;
        item.modifiers.require_empty()?;
        if let Some(receiver) = item.sig.receiver() {
            let why = "methods need `#[tools]` on their `impl` block";
            return Err(Error::new_spanned(receiver, why));
        }
        if let Some(parameter) = item.sig.inputs.iter().nth(MAX_PARAMETERS) {
            let why = "at most 16 parameters; take a struct with `Args<T>` instead";
            return Err(Error::new_spanned(parameter, why));
        }
        let parameters = parameter::read(item.sig.inputs.iter_mut())?;
        let arguments = arguments_type_name(&item.sig.ident);
        Ok(Self {
            item,
            parameters,
            arguments,
        })
    }

    fn is_async(&self) -> bool {
        self.item.sig.asyncness.is_some()
    }

    /// Returns the function, or a closure that calls it with the parameters of a handler.
    fn handler(&self, kind: AttributeKind, bowline: &Path) -> TokenStream {
        let function = &self.item.sig.ident;
        let span = return_span(&self.item.sig);
        let is_ready = !self.is_async() && kind.needs_async();
        if self.parameters.is_empty() && !is_ready {
            return quote_spanned!(span=> #function);
        }
        let closure = parameter::closure(&self.arguments, &self.parameters, bowline);
        let call_arguments = call_arguments(&self.parameters);
        let call = quote_spanned!(span=> #function(#call_arguments));
        match is_ready {
            true => quote_spanned!(span=> |#closure| ::std::future::ready(#call)),
            false => quote_spanned!(span=> |#closure| #call),
        }
    }

    /// Returns a function with the same name and parameters, whose return type carries the definition, and the original
    /// function inside it.
    fn with_definition(&self, definition: &Definition, bowline: &Path) -> TokenStream {
        let arguments = parameter::arguments_type(&self.arguments, &self.parameters, bowline);
        let ItemFn {
            attrs,
            vis,
            sig,
            block,
            ..
        } = &self.item;
        let (outer, inner): (Vec<&Attribute>, Vec<&Attribute>) = attrs
            .iter()
            .partition(|attribute| docs::is_doc(attribute) || attribute.path().is_ident("cfg"));
        let name = &sig.ident;
        let (parameters, call_arguments) = plain_parameters(sig);
        let output = match &sig.output {
            ReturnType::Type(_, ty) => quote!(#ty),
            ReturnType::Default => quote!(()),
        };
        let (wrapper, output) = match self.is_async() {
            true => (
                quote!(FunctionCall),
                quote!(impl ::std::future::Future<Output = #output>),
            ),
            false => (quote!(FunctionOutput), output),
        };
        let Definition { ty, expression, .. } = definition;
        quote! {
            #(#outer)*
            #[allow(clippy::too_many_arguments, reason = "the original function is checked")]
            #vis fn #name(
                #parameters
            ) -> #bowline::server::#wrapper<impl #bowline::server::Definition<Item = #ty>, #output> {
                #arguments
                #(#inner)*
                #sig #block

                enum __Definition {}

                impl #bowline::server::Definition for __Definition {
                    type Item = #ty;

                    fn definition() -> #ty {
                        #expression
                    }
                }

                #bowline::server::#wrapper::<__Definition, _>::new(#name(#call_arguments))
            }
        }
    }
}

/// Returns the parameters with names in place of patterns, and these names.
fn plain_parameters(signature: &Signature) -> (TokenStream, TokenStream) {
    let typed = signature.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(input) => Some(input),
        FnArg::Receiver(_) => None,
    });
    let named = typed.enumerate().map(|(position, input)| {
        let name = match &*input.pat {
            Pat::Ident(own) if own.ident != signature.ident => own.ident.clone(),
            _ => parameter::binding(position),
        };
        (name, &input.ty)
    });
    let (names, types): (Vec<_>, Vec<_>) = named.unzip();
    (quote!(#(#names: #types),*), quote!(#(#names),*))
}

/// Returns the arguments for calling the function inside the closure of [`parameter::closure`].
pub(crate) fn call_arguments(parameters: &[Parameter]) -> TokenStream {
    let names = (0..parameters.len()).map(parameter::binding);
    quote!(#(#names),*)
}

/// Returns `AddArguments` for `add`.
pub(crate) fn arguments_type_name(function: &Ident) -> Ident {
    let words = options::ident_name(function);
    let capitalised = words.split('_').map(|word| {
        let mut letters = word.chars();
        let first = letters.next().into_iter().flat_map(char::to_uppercase);
        first.chain(letters).collect::<String>()
    });
    format_ident!("{}Arguments", capitalised.collect::<String>())
}

pub(crate) fn return_span(signature: &Signature) -> Span {
    match &signature.output {
        ReturnType::Type(_, ty) => ty.span(),
        ReturnType::Default => signature.ident.span(),
    }
}

pub(crate) fn reject_generics(signature: &Signature) -> Result<()> {
    if signature.generics.params.is_empty() {
        return Ok(());
    }
    let why = "a handler cannot be generic, because its arguments have one JSON Schema; write the type that it takes";
    Err(Error::new_spanned(&signature.generics, why))
}
