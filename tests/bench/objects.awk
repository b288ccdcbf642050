# Reads PATH<tab>GROUP, then `ostree ls -R -C`; prints OBJECT<tab>GROUP of each content object.

FNR == NR {
    tab = index($0, "\t")
    group[substr($0, 1, tab - 1)] = substr($0, tab + 1)
    next
}

/^[-l]/ {
    split($0, fields, " +")
    path = $0
    sub(/^[^\/]* [0-9a-f]+ \//, "/", path)
    if (/^l/) sub(/ -> .*$/, "", path)
    print fields[5] "\t" (path in group ? group[path] : "unpackaged")
}
