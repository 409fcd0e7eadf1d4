//! How alike two names are, for whoever mistyped one.

/// How many characters must be changed, added, left out or exchanged with their neighbour.
pub(crate) fn edit_distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, a) in one.iter().enumerate() {
        let mut this = vec![row + 1];
        for (column, b) in other.iter().enumerate() {
            let at =
                |line: &[usize], index: usize| line.get(index).copied().unwrap_or(usize::MAX / 2);
            let mut fewest = (at(&last, column) + usize::from(a != b))
                .min(at(&last, column + 1) + 1)
                .min(at(&this, column) + 1);
            let swapped = row > 0
                && column > 0
                && one.get(row - 1) == Some(b)
                && other.get(column - 1) == Some(a);
            if swapped {
                fewest = fewest.min(at(&before_last, column - 1) + 1);
            }
            this.push(fewest);
        }
        before_last = std::mem::replace(&mut last, this);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanged_missing_and_wrong_letters_count_one_each() {
        for (one, other, expected) in [
            ("spea", "sepa", 1),
            ("sepa", "sepa", 0),
            ("sep", "sepa", 1),
            ("ach", "sepa", 4),
            ("", "ab", 2),
        ] {
            assert_eq!(edit_distance(one, other), expected, "{one} {other}");
        }
    }
}
