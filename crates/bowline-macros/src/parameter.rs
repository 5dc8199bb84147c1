//! The parameters of a function: what the model passes, and what the handler is given.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::spanned::Spanned;
use syn::{Attribute, Error, Expr, FnArg, Ident, LitStr, Pat, PatType, Path, Result, Type};

use crate::docs;
use crate::options::plain;

/// One parameter of a function.
pub(crate) enum Parameter {
    /// Part of the arguments that are passed.
    Argument(Box<Argument>),
    /// Something of the request or the server, found by its type.
    Given(Box<Type>),
}

/// A parameter that is passed.
pub(crate) struct Argument {
    name: Ident,
    ty: Type,
    /// What goes onto the field: doc comments, `serde` and `schemars`.
    attributes: Vec<Attribute>,
    default: Default,
    renamed: Option<LitStr>,
    header: Option<LitStr>,
}

/// What stands in for an argument that is left out.
enum Default {
    None,
    OfType,
    Value(Box<Expr>),
}

/// The parameters, in order. Takes off them what only the macro understands.
pub(crate) fn read<'a>(inputs: impl Iterator<Item = &'a mut FnArg>) -> Result<Vec<Parameter>> {
    let mut parameters = Vec::new();
    let mut errors: Option<Error> = None;
    for input in inputs {
        let FnArg::Typed(input) = input else {
            continue;
        };
        match Parameter::read(input) {
            Ok(parameter) => parameters.push(parameter),
            Err(error) => match &mut errors {
                Some(errors) => errors.combine(error),
                None => errors = Some(error),
            },
        }
    }
    match errors {
        Some(errors) => Err(errors),
        None => one_kind_of_arguments(parameters),
    }
}

impl Parameter {
    fn read(input: &mut PatType) -> Result<Self> {
        let attributes = std::mem::take(&mut input.attrs);
        let options = Options::read(attributes)?;
        let is_given = match options.kind {
            Some(kind) => kind == Kind::Given,
            None => is_given_by_its_name(&input.ty),
        };
        if is_given {
            return Ok(Self::Given(input.ty.clone()));
        }
        Argument::read(input, options).map(|argument| Self::Argument(Box::new(argument)))
    }

    /// The parameter in the call of the function; what is given is numbered.
    pub(crate) fn passed(&self, position: usize) -> TokenStream {
        match self {
            Self::Argument(argument) => argument.name.to_token_stream(),
            Self::Given(_) => given(position).to_token_stream(),
        }
    }
}

impl Argument {
    fn read(input: &PatType, options: Options) -> Result<Self> {
        let Pat::Ident(name) = &*input.pat else {
            let why = "an argument needs a name, for the model to pass it by";
            return Err(Error::new_spanned(&input.pat, why));
        };
        if let Type::Reference(reference) = &*input.ty {
            let why =
                "an argument is owned by its call: take it by value, such as `String` for `&str`";
            return Err(Error::new_spanned(reference, why));
        }
        if last_segment(&input.ty).is_some_and(|name| name == "Caller") {
            return Err(Error::new(
                input.ty.span(),
                "the caller is given as `Arc<Caller>`",
            ));
        }
        Ok(Self {
            name: name.ident.clone(),
            ty: (*input.ty).clone(),
            attributes: options.passed_on,
            default: options.default,
            renamed: options.renamed,
            header: options.header,
        })
    }

    fn field(&self) -> TokenStream {
        let Self {
            name,
            ty,
            attributes,
            header,
            ..
        } = self;
        let default = match &self.default {
            Default::None => None,
            Default::OfType => Some(quote!(#[serde(default)])),
            Default::Value(_) => {
                let function = self.default_name().to_string();
                Some(quote!(#[serde(default = #function)]))
            }
        };
        let renamed = self.renamed();
        let renamed = renamed.iter();
        let header = header.iter();
        quote! {
            #(#attributes)*
            #default
            #(#[serde(rename = #renamed)])*
            #(#[schemars(extend("x-mcp-header" = #header))])*
            #name: #ty
        }
    }

    /// The name by which it is passed, if that is another: a parameter that is not used yet has an
    /// underscore that is nobody else's business.
    fn renamed(&self) -> Option<String> {
        if let Some(renamed) = &self.renamed {
            return Some(renamed.value());
        }
        let name = plain(&self.name);
        let used = name.trim_start_matches('_');
        (used != name && !used.is_empty()).then(|| used.to_owned())
    }

    fn default_function(&self) -> Option<TokenStream> {
        let Default::Value(value) = &self.default else {
            return None;
        };
        let (function, ty) = (self.default_name(), &self.ty);
        Some(quote! {
            fn #function() -> #ty {
                #value
            }
        })
    }

    fn default_name(&self) -> Ident {
        format_ident!("default_{}", self.name)
    }
}

/// The arguments as a type called `name`, and what it needs beside it. Nothing, if there are no arguments.
pub(crate) fn arguments_type(
    name: &Ident,
    parameters: &[Parameter],
    bowline: &Path,
) -> TokenStream {
    let arguments: Vec<_> = arguments(parameters).collect();
    if arguments.is_empty() {
        return TokenStream::new();
    }
    let fields = arguments.iter().map(|argument| argument.field());
    let defaults = arguments
        .iter()
        .filter_map(|argument| argument.default_function());
    let serde = quote!(#bowline::serde).to_string();
    let schemars = quote!(#bowline::schemars).to_string();
    quote! {
        #[derive(#bowline::serde::Deserialize, #bowline::schemars::JsonSchema)]
        #[serde(crate = #serde)]
        #[schemars(crate = #schemars)]
        struct #name {
            #(#fields,)*
        }
        #(#defaults)*
    }
}

/// The parameters of the closure that stands for the function: first the arguments, taken apart.
pub(crate) fn closure(name: &Ident, parameters: &[Parameter], bowline: &Path) -> TokenStream {
    let arguments: Vec<_> = arguments(parameters)
        .map(|argument| &argument.name)
        .collect();
    let arguments = (!arguments.is_empty())
        .then(|| quote!(#bowline::Args(#name { #(#arguments),* }): #bowline::Args<#name>,));
    let given = parameters
        .iter()
        .enumerate()
        .filter_map(|(position, parameter)| {
            let Parameter::Given(ty) = parameter else {
                return None;
            };
            let name = given(position);
            Some(quote!(#name: #ty,))
        });
    quote!(#arguments #(#given)*)
}

/// The names by which arguments are passed, and where they stand.
pub(crate) fn names(parameters: &[Parameter]) -> impl Iterator<Item = (String, Span)> {
    arguments(parameters).map(|argument| {
        let renamed = argument.renamed();
        let name = renamed.unwrap_or_else(|| plain(&argument.name));
        (name, argument.name.span())
    })
}

fn has_arguments(parameters: &[Parameter]) -> bool {
    arguments(parameters).next().is_some()
}

fn arguments(parameters: &[Parameter]) -> impl Iterator<Item = &Argument> {
    parameters.iter().filter_map(|parameter| match parameter {
        Parameter::Argument(argument) => Some(&**argument),
        Parameter::Given(_) => None,
    })
}

fn given(position: usize) -> Ident {
    format_ident!("given_{position}")
}

fn one_kind_of_arguments(parameters: Vec<Parameter>) -> Result<Vec<Parameter>> {
    let args = parameters.iter().find_map(|parameter| match parameter {
        Parameter::Given(ty) if last_segment(ty).is_some_and(|name| name == "Args") => Some(ty),
        _ => None,
    });
    match args {
        Some(args) if has_arguments(&parameters) => {
            let why = "the arguments are either plain parameters or one `Args<_>`, not both";
            Err(Error::new_spanned(args, why))
        }
        _ => Ok(parameters),
    }
}

/// Whether a type is one that handlers are given, as far as its name tells.
fn is_given_by_its_name(ty: &Type) -> bool {
    let Type::Path(path) = ty else {
        return false;
    };
    let Some(last) = path.path.segments.last() else {
        return false;
    };
    match last.ident.to_string().as_str() {
        "AskedUri" | "Context" | "Json" | "Meta" | "Principal" => last.arguments.is_none(),
        "Args" | "State" | "Extension" => !last.arguments.is_none(),
        "Arc" => holds(&last.arguments, |inner| {
            last_segment(inner).is_some_and(|name| name == "Caller")
        }),
        "Option" => holds(&last.arguments, |inner| {
            last_segment(inner).is_some_and(|name| name == "Extension")
        }),
        _ => false,
    }
}

fn holds(arguments: &syn::PathArguments, is: impl Fn(&Type) -> bool) -> bool {
    let syn::PathArguments::AngleBracketed(arguments) = arguments else {
        return false;
    };
    arguments
        .args
        .iter()
        .any(|argument| matches!(argument, syn::GenericArgument::Type(ty) if is(ty)))
}

fn last_segment(ty: &Type) -> Option<&Ident> {
    match ty {
        Type::Path(path) => path.path.segments.last().map(|segment| &segment.ident),
        _ => None,
    }
}

/// What the attributes of one parameter say.
struct Options {
    kind: Option<Kind>,
    passed_on: Vec<Attribute>,
    default: Default,
    renamed: Option<LitStr>,
    header: Option<LitStr>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Argument,
    Given,
}

impl Options {
    fn read(attributes: Vec<Attribute>) -> Result<Self> {
        let mut options = Self {
            kind: None,
            passed_on: Vec::new(),
            default: Default::None,
            renamed: None,
            header: None,
        };
        for attribute in attributes {
            let path = attribute.path();
            if path.is_ident("header") {
                options.header = Some(attribute.parse_args()?);
            } else if MACROS.iter().any(|name| path.is_ident(name)) {
                options.read_own(&attribute)?;
            } else if docs::is_doc(&attribute)
                || path.is_ident("serde")
                || path.is_ident("schemars")
            {
                options.passed_on.push(attribute);
            } else {
                let why = "an argument has doc comments, `#[tool(…)]`, `#[header(\"…\")]`, `#[serde(…)]` and \
                           `#[schemars(…)]`";
                return Err(Error::new_spanned(&attribute, why));
            }
        }
        Ok(options)
    }

    fn read_own(&mut self, attribute: &Attribute) -> Result<()> {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("default") {
                self.default = match meta.value() {
                    Ok(value) => Default::Value(value.parse()?),
                    Err(_) => Default::OfType,
                };
            } else if meta.path.is_ident("name") {
                self.renamed = Some(meta.value()?.parse()?);
            } else if meta.path.is_ident("given") {
                self.kind = Some(Kind::Given);
            } else if meta.path.is_ident("argument") {
                self.kind = Some(Kind::Argument);
            } else {
                return Err(meta.error("a parameter's options are: default, name, argument, given"));
            }
            Ok(())
        })
    }
}

const MACROS: &[&str] = &["tool", "prompt", "resource"];
