/// Puts a value at its place in a table that grows with the most that were ever present together.
pub(crate) fn put<T: Copy>(table: &mut Vec<T>, index: usize, value: T) {
    if index >= table.len() {
        table.resize(index + 1, value);
    }
    table[index] = value;
}
