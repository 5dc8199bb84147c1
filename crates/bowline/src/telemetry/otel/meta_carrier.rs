//! [`MetaExtractor`] and [`MetaInjector`]: `params._meta` as the carrier of a propagator.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use bowline_core::json::{Object, Params};
use bowline_types::{Json, Meta};
use opentelemetry::propagation::{Extractor, Injector};

use crate::telemetry::names::META_KEYS;

/// Reads the context of a request. `_meta` is decoded when the propagator first asks for a key.
pub(super) struct MetaExtractor<'a> {
    params: &'a Params,
    values: OnceCell<BTreeMap<String, String>>,
}

impl<'a> MetaExtractor<'a> {
    pub(super) fn of_params(params: &'a Params) -> Self {
        Self {
            params,
            values: OnceCell::new(),
        }
    }

    fn values(&self) -> &BTreeMap<String, String> {
        self.values.get_or_init(|| self.read().unwrap_or_default())
    }

    /// Returns the members of `_meta` that are short strings. A propagator may have keys of its own.
    fn read(&self) -> Option<BTreeMap<String, String>> {
        let meta = self.params.member("_meta").ok()??;
        let object = Object::read_at_most(&meta, MAX_MEMBERS).ok()?;
        let texts = object.iter().filter_map(|(key, value)| {
            let is_carried = META_KEYS.contains(&key) || !key.contains('/');
            if !is_carried || value.as_bytes().len() > MAX_VALUE {
                return None;
            }
            Some((key.to_owned(), value.text().ok()?.into_owned()))
        });
        Some(texts.collect())
    }
}

impl Extractor for MetaExtractor<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.values().get(key).map(String::as_str)
    }

    fn keys(&self) -> Vec<&str> {
        self.values().keys().map(String::as_str).collect()
    }
}

/// Collects what a propagator writes.
#[derive(Default)]
pub(super) struct MetaInjector(Vec<(String, String)>);

impl MetaInjector {
    /// Returns `params` with the collected members in `_meta`; `None` if there are none, or `params` has a `_meta` that
    /// is not an object, which the server will refuse.
    pub(super) fn into_params(self, params: &Json) -> Option<Json> {
        if self.0.is_empty() {
            return None;
        }
        let mut object = Object::read(params).ok()?;
        let mut meta: Meta = match object.member("_meta") {
            Some(meta) => meta.decode().ok()?,
            None => Meta::default(),
        };
        // The context of the hop before this one.
        for key in META_KEYS {
            meta.remove(key);
        }
        for (key, value) in self.0 {
            meta.insert(key, Json::encode(&value).ok()?);
        }
        object.set("_meta", Json::encode(&meta).ok()?);
        Some(object.to_json())
    }
}

impl Injector for MetaInjector {
    fn set(&mut self, key: &str, value: String) {
        // A context that is not valid is written as an empty `tracestate` by some propagators.
        if !value.is_empty() {
            self.0.push((key.to_owned(), value));
        }
    }
}

/// The most members of `_meta` that are read.
const MAX_MEMBERS: usize = 64;
/// Longer values are ignored: W3C limits `baggage`, the longest, to 8 KiB.
const MAX_VALUE: usize = 8 * 1024 + 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_texts_of_meta_are_extracted() {
        let long = "x".repeat(MAX_VALUE);
        let text = format!(
            r#"{{"_meta":{{"traceparent":"00-a","n":7,"long":"{long}","io.modelcontextprotocol/x":"y","b3":"1"}}}}"#
        );
        let params = Params::from(Json::parse(text).unwrap());

        let extractor = MetaExtractor::of_params(&params);

        assert_eq!(extractor.keys(), ["b3", "traceparent"]);
        assert_eq!(extractor.get("traceparent"), Some("00-a"));
    }

    #[test]
    fn an_injected_context_replaces_that_of_the_hop_before() {
        let params = r#"{"name":"add","_meta":{"traceparent":"old","baggage":"old","own":1}}"#;
        let mut injector = MetaInjector::default();
        injector.set("traceparent", "new".to_owned());
        injector.set("tracestate", String::new());

        let params = injector.into_params(&Json::parse(params.to_owned()).unwrap());

        let expected = r#"{"name":"add","_meta":{"own":1,"traceparent":"new"}}"#;
        assert_eq!(params.unwrap().as_str(), expected);
    }
}
