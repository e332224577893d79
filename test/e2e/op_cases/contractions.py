"""Products of matrices and their generalisations."""
import numpy as np

from .table import Each, F, I, Table

case = Table("contractions").case

for a, b in (((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (2, 4, 5)), ((2, 3, 4), (4, 5)),
             ((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (3, 4, 2)), ((2, 3, 4), (4,)), ((4,), (2, 4, 3)), ((1, 4), (4, 1)), ((2, 1, 3, 4), (1, 5, 4, 2))):
    case("MatMul", F(*a), F(*b), name=f"{list(a)} {list(b)}")
case("MatMul", I(2, 3, below=9, dtype=np.int32), I(3, 4, below=9, dtype=np.int32), name="int32", since=9)
case("MatMul", F(3, 0), F(0, 2), name="over no element", differentiable=False)

for transA, transB in ((0, 0), (1, 0), (0, 1), (1, 1)):
    def operands():
        return F(*((4, 3) if transA else (3, 4))), F(*((5, 4) if transB else (4, 5)))
    case("Gemm", *operands(), F(5), transA=transA, transB=transB, name=f"transA={transA} transB={transB} bias", alpha=Each(..., 0.5),
         beta=Each(..., 2.0))
    case("Gemm", *operands(), transA=transA, transB=transB, name=f"transA={transA} transB={transB} no bias", since=11)
for c in ((3, 5), (3, 1), (1, 5), ()):
    case("Gemm", F(3, 4), F(4, 5), F(*c), name=f"C {list(c)}", beta=0.7)

for equation, *shapes in (("ij,jk->ik", (2, 3), (3, 4)), ("ij->ji", (2, 3)), ("ij->", (2, 3)), ("ij->i", (2, 3)), ("ii->i", (3, 3)),
                          ("ii->", (3, 3)), ("i,j->ij", (3,), (4,)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
                          ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)), ("...ij,...jk->...ik", (2, 3, 4), (4, 5)),
                          ("ij,jk", (2, 3), (3, 4)), ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)), ("ij,ij->", (2, 3), (2, 3)),
                          ("ijk,k->ij", (2, 3, 4), (4,)), ("...d->...", (2, 3, 4)), ("bii->bi", (2, 3, 3)), ("i,i,i->", (3,), (3,), (3,)),
                          ("ij,k->jk", (2, 3), (4,))):
    case("Einsum", *(F(*s) for s in shapes), equation=equation, name=equation)
case("Einsum", F(2, 3), F(3, 4), equation=" i j , j k -> i k ", name="spaces")
