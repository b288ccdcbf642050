# Which layer each file goes to: the 32 largest packages have one of their own, the others share 16, by a hash of their name.
# Reads PATH<tab>PACKAGE, then `ostree ls -R -C`; prints PATH<tab>GROUP.

BEGIN {
    FS = "\t"
    for (i = 32; i < 127; i++) code[sprintf("%c", i)] = i
}

FNR == NR { owner[$1] = $2; next }

/^[-l]/ {
    split($0, fields, " +")
    path = $0
    sub(/^[^\/]* [0-9a-f]+ \//, "/", path)
    if (/^l/) sub(/ -> .*$/, "", path)
    if (path in owner) {
        size[owner[path]] += fields[4]
        paths[++count] = path
    }
}

END {
    for (n = 0; n < 32; n++) {
        best = ""
        for (package in size)
            if (!(package in group) && (best == "" || size[package] > size[best] || size[package] == size[best] && package < best))
                best = package
        if (best == "") break
        group[best] = best
    }
    for (package in size)
        if (!(package in group)) {
            hash = 0
            for (i = 1; i <= length(package); i++) hash = (hash * 31 + code[substr(package, i, 1)]) % 65521
            group[package] = "shared-" hash % 16
        }
    for (i = 1; i <= count; i++) print paths[i] "\t" group[owner[paths[i]]]
}
