# Reads PATH<tab>GROUP, then `ostree ls -R -C`; prints OBJECT<tab>GROUP of each file that has a group.

FNR == NR {
    tab = index($0, "\t")
    group[substr($0, 1, tab - 1)] = substr($0, tab + 1)
    next
}

/^-/ {
    split($0, fields, " +")
    path = $0
    sub(/^.* [0-9a-f]+ \//, "/", path)
    if (path in group) print fields[5] "\t" group[path]
}
