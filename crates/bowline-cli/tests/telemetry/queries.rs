//! [`Query`], the names in a PromQL expression.

use crate::exported::Exported;

/// The names in an expression.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Query {
    text: String,
    pub(crate) metrics: Vec<String>,
    labels: Vec<String>,
    /// Labels that are compared with a value.
    values: Vec<(String, String)>,
}

/// Returns the queries of all panels and variables of a Grafana dashboard.
pub(crate) fn of_dashboard(json: &str) -> Vec<Query> {
    let dashboard: serde_json::Value = serde_json::from_str(json).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let mut query = Query::parse(target["expr"].as_str().unwrap());
            let legend = target["legendFormat"].as_str().unwrap();
            query.add_placeholders(legend, "{{", "}}");
            queries.push(query);
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let definition = variable["definition"].as_str().unwrap_or_default();
        if let Some(values) = definition.strip_prefix("label_values(") {
            let (selector, label) = values.trim_end_matches(')').rsplit_once(", ").unwrap();
            let mut query = Query::parse(selector);
            query.labels.push(label.to_owned());
            queries.push(query);
        }
    }
    queries
}

/// Returns the queries of a file with alert rules, whose expressions stand on one line each.
pub(crate) fn of_rules(yaml: &str) -> Vec<Query> {
    let mut queries = Vec::<Query>::new();
    for line in yaml.lines().map(str::trim) {
        if let Some(expression) = line.strip_prefix("expr: ") {
            queries.push(Query::parse(expression));
        } else if let Some(query) = queries.last_mut() {
            query.add_placeholders(line, "{{ $labels.", " }}");
        }
    }
    let alerts = yaml.matches("- alert: ").count();
    assert_eq!(queries.len(), alerts);
    queries
}

impl Query {
    fn parse(text: &str) -> Self {
        let mut query = Self {
            text: text.to_owned(),
            ..Self::default()
        };
        let mut rest = text;
        let mut is_grouping = false;
        while let Some(character) = rest.chars().next() {
            let word = rest.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
            let word = word.clone().next().unwrap_or_default();
            match character {
                '{' => {
                    let (matchers, after) = rest[1..].split_once('}').unwrap();
                    query.add_matchers(matchers);
                    rest = after;
                    continue;
                }
                '[' => {
                    rest = rest.split_once(']').unwrap().1;
                    continue;
                }
                '(' if is_grouping => {
                    let (labels, after) = rest[1..].split_once(')').unwrap();
                    let labels = labels.split(',').map(|it| it.trim().to_owned());
                    query.labels.extend(labels);
                    (rest, is_grouping) = (after, false);
                    continue;
                }
                _ if word.is_empty() => {
                    rest = &rest[character.len_utf8()..];
                    continue;
                }
                _ => {}
            }
            rest = &rest[word.len()..];
            match word {
                "by" | "without" | "on" | "ignoring" => is_grouping = true,
                _ if word.starts_with(|it: char| it.is_ascii_digit()) => {}
                _ if rest.trim_start().starts_with('(') || rest.starts_with(" by (") => {}
                _ => query.metrics.push(word.to_owned()),
            }
        }
        query
    }

    fn add_matchers(&mut self, matchers: &str) {
        for matcher in matchers.split(',') {
            let name = matcher.split(['=', '!']).next().unwrap();
            self.labels.push(name.to_owned());
            if let Some((name, value)) = matcher.split_once("=\"") {
                let value = value.trim_end_matches('"');
                if !name.ends_with('!') {
                    self.values.push((name.to_owned(), value.to_owned()));
                }
            }
        }
    }

    fn add_placeholders(&mut self, text: &str, start: &str, end: &str) {
        let parts = text.split(start).skip(1);
        let names = parts.map(|part| part.split(end).next().unwrap().to_owned());
        self.labels.extend(names);
    }

    /// Checks that every metric was exported with every label and value.
    pub(crate) fn check(&self, exported: &Exported) {
        let text = &self.text;
        assert!(!self.metrics.is_empty(), "{text}");
        for name in &self.metrics {
            let Some(labels) = exported.labels(name) else {
                panic!("no metric `{name}` was exported: {text}");
            };
            for label in self.labels.iter().filter(|it| !is_of_prometheus(it)) {
                assert!(
                    labels.contains_key(label),
                    "`{name}` has no `{label}`: {text}"
                );
            }
            for (label, value) in &self.values {
                let is_exported = labels[label].contains(value) || NOT_IN_LOAD.contains(&&**value);
                assert!(
                    is_exported,
                    "`{label}` of `{name}` is never `{value}`: {text}"
                );
            }
        }
    }
}

/// Returns whether Prometheus adds this label to all metrics.
fn is_of_prometheus(label: &str) -> bool {
    ["job", "instance"].contains(&label)
}

/// Values that the load does not cause: a handler that goes on after it was cancelled.
const NOT_IN_LOAD: [&str; 1] = ["returned"];

#[test]
fn metrics_labels_and_values_are_found_in_an_expression() {
    let query = Query::parse(
        "histogram_quantile(0.95, sum by (le, tool) (rate(a_bucket{job=~\"$job\",kind=\"x\"}[5m]))) / sum(b) > 3",
    );

    assert_eq!(query.metrics, ["a_bucket", "b"]);
    assert_eq!(query.labels, ["le", "tool", "job", "kind"]);
    assert_eq!(query.values, [("kind".to_owned(), "x".to_owned())]);
}
