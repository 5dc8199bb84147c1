//! Tests of matching and expanding URI templates.

use super::*;

fn template(text: &str) -> UriTemplate {
    UriTemplate::parse(text).unwrap()
}

fn texts(pairs: &[(&str, &str)]) -> Variables {
    let mut variables = Variables::default();
    for (name, text) in pairs {
        variables.set(*name, *text);
    }
    variables
}

#[test]
fn each_kind_of_expression_is_matched() {
    type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

    let cases: [Case<'_>; 12] = [
        ("a://{x}", "a://1", &[("x", "1")]),
        ("a://{x}/b", "a://%2A%20/b", &[("x", "* ")]),
        ("a://{x,y}", "a://1,2", &[("x", "1"), ("y", "2")]),
        ("a://{x}-{y}", "a://1-2-3", &[("x", "1-2"), ("y", "3")]),
        ("a://{x}4{y}", "a://x4%40", &[("x", "x"), ("y", "@")]),
        ("a://{+x}", "a://b/c?d=e#f", &[("x", "b/c?d=e#f")]),
        ("a://{+x}/end", "a://b/end/end", &[("x", "b/end")]),
        ("a:{/x,y}", "a:/1/2", &[("x", "1"), ("y", "2")]),
        ("a:{/x,y}", "a:", &[]),
        ("a:b{?x,y}", "a:b?y=2&x=", &[("x", ""), ("y", "2")]),
        ("a:b?c=d{&x}", "a:b?c=d&x=1", &[("x", "1")]),
        ("a:b{?x}{&y}{#z}", "a:b?y=1#z?", &[("y", "1"), ("z", "z?")]),
    ];
    for (pattern, uri, expected) in cases {
        let found = template(pattern).find(uri);

        assert_eq!(found, Some(texts(expected)), "{pattern} and {uri}");
    }
}

#[test]
fn lists_are_matched_in_order() {
    let found = template("a:{/path*}{?tag*}")
        .find("a:/b/c%20d?tag=1&tag=2")
        .unwrap();

    assert_eq!(found.all("path").collect::<Vec<_>>(), ["b", "c d"]);
    assert_eq!(found.all("tag").collect::<Vec<_>>(), ["1", "2"]);
}

#[test]
fn a_uri_that_does_not_match_has_no_values() {
    let cases = [
        ("a://{x}", "a://"),
        ("a://{x}", "b://1"),
        ("a://{x}", "a://1/2"),
        ("a://{x}", "a://%4"),
        ("a://{x}", "a://%ff"),
        ("a://{x}", "a://é"),
        ("a://{x}", "a://1?y=2"),
        ("a:b{?x}", "a:b?y=1"),
        ("a:b{?x}", "a:b?x=1&x=2"),
        ("a:b{?x}", "a:b?x"),
        ("a:b{?x}", "a:b?"),
        ("a:b{#x}", "a:b?x=1"),
    ];
    for (pattern, uri) in cases {
        assert_eq!(template(pattern).find(uri), None, "{pattern} and {uri}");
    }
}

#[test]
fn values_with_path_traversal_are_rejected() {
    let cases = [
        ("file:///{x}", "file:///.."),
        ("file:///{x}", "file:///."),
        ("file:///{x}", "file:///%2e%2E"),
        ("file:///{x}", "file:///a%2Fb"),
        ("file:///{x}", "file:///a%5Cb"),
        ("file:///{x}", "file:///a%00"),
        ("file:///{+x}", "file:///a/../b"),
        ("file:///{+x}", "file:///a/%2e%2e/b"),
        ("file:///{+x}", "file:///a%2fb"),
        ("file://{/x*}", "file:///a/../b"),
        ("file:{?x}", "file:?x=../b"),
        ("file:{#x}", "file:#%00"),
    ];
    for (pattern, uri) in cases {
        assert_eq!(template(pattern).find(uri), None, "{pattern} and {uri}");
        let trusting = template(pattern).allow_any_value();
        assert!(trusting.find(uri).is_some(), "{pattern} and {uri}");
    }
}

#[test]
fn a_template_that_cannot_be_matched_unambiguously_is_rejected() {
    let cases = [
        "a:{",
        "a:}",
        "a:{}",
        "a:{x",
        "a:{x y}",
        "a:{x:3}",
        "a:{x*}",
        "a:{+x,y}",
        "a:{+x*}",
        "a:{.x}",
        "a:{;x}",
        "a:{x}{x}",
        "a:{?x}b",
        "a:{?x}{y}",
        "a:{?x}{?y}",
        "a:{#x}{&y}",
    ];
    for text in cases {
        let error = UriTemplate::parse(text).unwrap_err();

        assert!(matches!(error, Error::Misuse { .. }), "{text}");
    }
}

#[test]
fn a_long_uri_is_rejected_quickly() {
    let uri = format!("a://{}", "-".repeat(100_000));

    assert_eq!(template("a://{x}-{y}-{z}-").find(&uri), None);
}

/// Takes minutes if each value is searched among all before it, from each offset where a query may begin.
#[test]
fn a_long_query_of_lists_is_matched_quickly() {
    let template = template("x:{+path}{&a*,b*}");
    let uri = format!("x:y{}{}", "&a=".repeat(1_300), "&b=".repeat(1_300));

    let found = template.find(&uri).unwrap();

    assert_eq!(found.text("path"), Some("y"));
    assert_eq!(found.all("a").count(), 1_300);
    assert_eq!(found.all("b").count(), 1_300);
}

#[test]
fn matching_is_the_inverse_of_expanding() {
    let mut dice = Dice(7);
    for round in 0..20_000 {
        let (pattern, values) = dice.pattern_and_values();
        let template = template(&pattern);

        let uri = template.expand(&values);
        let found = template.find(&uri);

        let found = found.unwrap_or_else(|| panic!("round {round}: {pattern} lost {uri}"));
        assert_eq!(template.expand(&found), uri, "round {round}: {pattern}");
        assert_eq!(found, values, "round {round}: {pattern} and {uri}");
    }
}

/// A seeded generator of test cases.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    /// Returns a template whose literals separate its values, so that a URI matches in one way only.
    fn pattern_and_values(&mut self) -> (String, Variables) {
        let mut pattern = "s:/".to_owned();
        let mut values = Variables::default();
        for part in 0..self.roll(4) {
            let (first, second) = (format!("a{part}"), format!("b{part}"));
            pattern.push('/');
            match self.roll(3) {
                0 => {
                    let _ = write!(pattern, "{{{first}}}");
                    values.set(first, self.text(1, ""));
                }
                1 => {
                    let _ = write!(pattern, "{{{first},{second}}}!");
                    values.set(first, self.text(1, ""));
                    values.set(second, self.text(1, ""));
                }
                _ => {
                    let _ = write!(pattern, "fixed%20{part}");
                }
            }
        }
        match self.roll(4) {
            0 => {
                pattern.push_str("!{+rest}");
                values.set("rest", self.text(1, "/:@!,;="));
            }
            1 => {
                pattern.push_str("/{/list*}");
                for _ in 0..self.roll(4) {
                    values.push("list", self.text(1, ""));
                }
            }
            _ => {}
        }
        if self.roll(2) == 0 {
            pattern.push_str("{?q,r*}");
            if self.roll(2) == 0 {
                values.set("q", self.text(0, "/"));
            }
            for _ in 0..self.roll(3) {
                values.push("r", self.text(0, "?&="));
            }
        }
        if self.roll(2) == 0 {
            pattern.push_str("{#f}");
            values.set("f", self.text(0, "?/"));
        }
        (pattern, values)
    }

    fn text(&mut self, least: u64, more: &str) -> String {
        let alphabet: Vec<char> = "abz09-_~ %é漢&,\"".chars().chain(more.chars()).collect();
        let length = least + self.roll(6);
        let characters = (0..length).map(|_| alphabet[self.roll(alphabet.len() as u64) as usize]);
        characters.collect()
    }
}
