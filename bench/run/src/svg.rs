//! Draws the growth curves as SVG: one panel per curve, with logarithmic axes.

use std::fmt::Write as _;

use crate::measure::Row;
use crate::program::Subject;

/// Draws all rows that are on a curve; `None` if there are none.
pub(crate) fn draw(rows: &[Row]) -> Option<String> {
    let mut curves: Vec<&'static str> = Vec::new();
    for point in rows.iter().filter_map(|row| row.point) {
        if !curves.contains(&point.of) {
            curves.push(point.of);
        }
    }
    if curves.is_empty() {
        return None;
    }
    let width = WIDTH * curves.len() as f64;
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" font-family="sans-serif" font-size="11">
<rect width="{width}" height="{HEIGHT}" fill="#fff"/>
"##
    );
    for (index, of) in curves.iter().enumerate() {
        let on_it = |row: &&Row| row.point.is_some_and(|point| point.of == *of);
        let rows: Vec<&Row> = rows.iter().filter(on_it).collect();
        panel(&mut svg, WIDTH * index as f64, of, &rows);
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

fn panel(svg: &mut String, left: f64, of: &str, rows: &[&Row]) {
    let counts = rows.iter().filter_map(|row| Some(row.point?.count as f64));
    let costs = rows
        .iter()
        .flat_map(|row| row.cells.iter().map(|cell| cell.value.median));
    let (across, up) = (Scale::of(counts), Scale::of(costs));
    let x = |count: f64| left + MARGIN + across.share(count) * (WIDTH - 2.0 * MARGIN);
    let y = |cost: f64| HEIGHT - MARGIN - up.share(cost) * (HEIGHT - 2.0 * MARGIN);
    let _ = writeln!(
        svg,
        r#"<text x="{:.0}" y="20" font-size="13">µs CPU per message, by {of}</text>"#,
        left + MARGIN
    );
    for count in across.ticks() {
        let _ = writeln!(
            svg,
            r##"<path d="M{0:.1} {1:.1}V{2:.1}" stroke="#ddd"/><text x="{0:.1}" y="{3:.1}" text-anchor="middle">{count}</text>"##,
            x(count),
            y(up.most),
            y(up.least),
            HEIGHT - MARGIN + 15.0
        );
    }
    for cost in up.ticks() {
        let _ = writeln!(
            svg,
            r##"<path d="M{1:.1} {0:.1}H{2:.1}" stroke="#ddd"/><text x="{3:.1}" y="{4:.1}" text-anchor="end">{cost}</text>"##,
            y(cost),
            x(across.least),
            x(across.most),
            left + MARGIN - 4.0,
            y(cost) + 4.0
        );
    }
    for (subject, colour) in Subject::ALL.into_iter().zip(COLOURS) {
        let places: Vec<(f64, f64)> = rows
            .iter()
            .filter_map(|row| {
                let cell = row
                    .cells
                    .iter()
                    .find(|cell| cell.subject == subject.name())?;
                Some((x(row.point?.count as f64), y(cell.value.median)))
            })
            .collect();
        let Some((last_x, last_y)) = places.last().copied() else {
            continue;
        };
        let line: Vec<String> = places
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = writeln!(
            svg,
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2"/><text x="{:.1}" y="{:.1}" text-anchor="end" fill="{colour}">{}</text>"#,
            line.join(" "),
            last_x,
            last_y - 6.0,
            subject.name()
        );
    }
}

/// A logarithmic axis from one power of ten to another.
struct Scale {
    least: f64,
    most: f64,
}

impl Scale {
    fn of(figures: impl Iterator<Item = f64>) -> Self {
        let (least, most) = figures.fold((f64::MAX, f64::MIN), |(least, most), figure| {
            (least.min(figure), most.max(figure))
        });
        let least = 10f64.powf(least.log10().floor());
        let most = 10f64.powf(most.log10().ceil());
        Self {
            least,
            most: most.max(least * 10.0),
        }
    }

    fn share(&self, figure: f64) -> f64 {
        (figure / self.least).log10() / (self.most / self.least).log10()
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let most = self.most * 1.5;
        std::iter::successors(Some(self.least), |tick| Some(tick * 10.0))
            .take_while(move |tick| *tick < most)
    }
}

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 300.0;
const MARGIN: f64 = 40.0;
const COLOURS: [&str; 4] = ["#888", "#06c", "#c60", "#a33"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_rounded_to_powers_of_ten() {
        let scale = Scale::of([12.0, 3_400.0].into_iter());

        assert_eq!((scale.least, scale.most), (10.0, 10_000.0));
        assert_eq!(scale.share(10.0), 0.0);
        assert_eq!(scale.ticks().count(), 4);
    }

    #[test]
    fn only_rows_on_a_curve_are_drawn() {
        let row = Row::plain("work", "µs CPU", None, &[(Subject::Bowline, 1.0)]);
        assert!(draw(&[row]).is_none());

        let row = Row::plain("work", "µs CPU", None, &[(Subject::Bowline, 1.0)]);
        let drawn = draw(&[row.at("tools", 10)]).unwrap();

        assert!(drawn.contains("by tools"), "{drawn}");
    }
}
